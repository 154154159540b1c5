// SPDX-License-Identifier: Apache-2.0

package uninstall

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/weft-net/weft/internal/endpoint/attach"
	"github.com/weft-net/weft/internal/kernel"
	"github.com/weft-net/weft/internal/plan/mesh"
	"github.com/weft-net/weft/internal/plan/policy"
	"github.com/weft-net/weft/internal/state"
)

// stay are the links of pods that run.
type stay map[string]bool

// staying returns the links of attachments: those with an attachment's mark, and those of the records.
func staying(all state.Space, records []attach.Record) stay {
	out := stay{}
	for _, l := range all.Links {
		if strings.HasPrefix(l.Alias, attach.MarkPrefix) && l.Alias != mesh.Mark && !shared(l) {
			out[l.Name] = true
		}
	}
	for _, r := range records {
		for _, l := range r.Fragment().Host.Links {
			out[l.Name] = true
		}
	}
	return out
}

func shared(l state.Link) bool { return strings.HasPrefix(l.Alias, kernel.SharedMark) }

// attached returns the names, sorted.
func (s stay) attached() []string {
	var out []string
	for name := range s {
		out = append(out, name)
	}
	slices.Sort(out)
	return out
}

// findKernel lists links, routes and tables. Those of running pods stay, and the tables that they share.
func (n *Node) findKernel(found *Found, all state.Space, stay stay) error {
	spaces := kernel.Spaces{Host: n.cfg.Host}
	f := state.Fragment{Owner: "uninstall"}
	var lines []string
	for _, r := range all.Routes {
		if r.Protocol == kernel.Protocol && !stay[r.Link] {
			f.Host.Routes = append(f.Host.Routes, r)
			lines = append(lines, r.String())
		}
	}
	var bridges state.Fragment
	var sharedLines []string
	for _, l := range all.Links {
		switch {
		case l.Alias == mesh.Mark:
			f.Host.Links = append(f.Host.Links, state.Link{Name: l.Name, Kind: l.Kind, Alias: l.Alias})
			lines = append(lines, "link "+l.Name)
		case shared(l) && len(found.Pods) > 0:
			found.Kept = append(found.Kept, "link "+l.Name+": pods of the network may use it")
		case shared(l):
			bridges.Host.Links = append(bridges.Host.Links, state.Link{Name: l.Name, Kind: l.Kind, Alias: l.Alias, Shared: true})
			sharedLines = append(sharedLines, "link "+l.Name)
		}
	}
	found.add(func(ctx context.Context) error { return spaces.Remove(ctx, f) }, lines...)
	found.add(func(ctx context.Context) error { return n.removeShared(ctx, bridges) }, sharedLines...)
	var tables []state.Table
	lines = nil
	for _, t := range all.Tables {
		name := "nft table " + t.Family + " " + t.Name
		if len(found.Pods) > 0 && !ofNode(t.Name) {
			found.Kept = append(found.Kept, name+": pods of the network use it")
			continue
		}
		tables = append(tables, state.Table{Family: t.Family, Name: t.Name})
		lines = append(lines, name)
	}
	found.add(func(ctx context.Context) error { return n.cfg.Host.RemoveTables(ctx, tables) }, lines...)
	return nil
}

// ofNode reports whether a table is not part of attachments: one of the mesh or of policies.
func ofNode(table string) bool {
	return slices.Contains(mesh.Tables(), table) || strings.HasPrefix(table, policy.TableName)
}

// removeShared deletes shared links. One to which another program has connected a link is left, which is an error: it
// would be taken away under that program.
func (n *Node) removeShared(ctx context.Context, f state.Fragment) error {
	if err := (kernel.Spaces{Host: n.cfg.Host}).RemoveShared(ctx, f); err != nil {
		return err
	}
	left, err := n.cfg.Host.Read(ctx, state.Space{Links: names(f.Host.Links)})
	if err != nil || len(left.Links) == 0 {
		return err
	}
	return fmt.Errorf("link %s: another program has connected a link to it; remove that, and run this again", left.Links[0].Name)
}

func names(links []state.Link) []state.Link {
	var out []state.Link
	for _, l := range links {
		out = append(out, state.Link{Name: l.Name})
	}
	return out
}
