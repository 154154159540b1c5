// SPDX-License-Identifier: Apache-2.0

package fastpath

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/weft-net/weft/internal/endpoint/attach"
	"github.com/weft-net/weft/internal/kernel/fastpath"
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/plan/mesh"
	"github.com/weft-net/weft/internal/plan/plugin"
	"github.com/weft-net/weft/internal/state"
)

// links makes the links of the path those of the routed pods and those to other nodes.
func (l *loop) links(ctx context.Context) {
	f := l.f
	all, err := f.all(ctx)
	f.mu.Lock()
	path := f.path
	f.mu.Unlock()
	if path == nil {
		return
	}
	var left []fastpath.Left
	if err == nil {
		left, err = path.Set(ctx, all)
	}
	if err != nil && ctx.Err() == nil {
		f.log.Warn("links of the fast path could not be changed", "err", err)
		l.due = f.cfg.After(renew)
	}
	var texts []string
	for _, one := range left {
		texts = append(texts, one.Name+": "+one.Why.Error())
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.left = texts
}

// all returns the links as they should be. Without a link to other nodes, flows within the node are learned alone.
func (f *FastPath) all(ctx context.Context) ([]fastpath.Link, error) {
	records, err := f.cfg.Records.List()
	if err != nil {
		return nil, fmt.Errorf("attachments: %w", err)
	}
	out := pods(records)
	if f.way == Flowtable {
		macs, err := f.guarded(ctx)
		if err != nil {
			return nil, err
		}
		for i, l := range out {
			out[i].MACs = macs[l.Name]
		}
	}
	if f.cfg.Topology == nil {
		return out, nil
	}
	t, err := f.cfg.Topology()
	if err != nil {
		return out, nil // the cluster is not known yet
	}
	for _, name := range uplinks(t) {
		out = append(out, fastpath.Link{Name: name, How: fastpath.ToNeighbor})
	}
	return out, nil
}

// pods returns the links of routed pods and of guests, without those whose packets are limited by rules. Limits by a queueing
// discipline at a pod's link are seen when it is attached. When a VM moves, its routes change on all nodes, and flows are
// learned again.
func pods(records []attach.Record) []fastpath.Link {
	var out []fastpath.Link
	for _, r := range records {
		e, ok := r.Endpoint()
		if !ok || r.Stage != attach.Done || e.Standby || e.Point() != model.PointHost || len(e.Addrs) == 0 {
			continue
		}
		f := r.Fragment()
		i := slices.IndexFunc(f.Host.Links, func(l state.Link) bool { return l.Name == e.HostLink })
		if i < 0 || counted(f.Host.Tables) {
			continue
		}
		how := fastpath.ToPeer
		switch f.Host.Links[i].Kind {
		case state.Veth:
		case state.Tap:
			how = fastpath.ToTap
		default:
			continue
		}
		out = append(out, fastpath.Link{Name: e.HostLink, How: how, Addrs: e.Addrs})
	}
	return out
}

// guarded returns the MAC addresses that the source guard permits at each link, those of guests included.
func (f *FastPath) guarded(ctx context.Context) (map[string][]string, error) {
	have, err := f.cfg.Host.Read(ctx, state.Space{Tables: []state.Table{{Family: "inet", Name: plugin.SourceTable}}})
	if err != nil {
		return nil, fmt.Errorf("source guard: %w", err)
	}
	out := map[string][]string{}
	for _, t := range have.Tables {
		for _, s := range t.Sets {
			for _, e := range s.Elements {
				if len(e.Key) < 2 {
					continue
				}
				link := strings.Trim(e.Key[0], `"`)
				if at, found := slices.BinarySearch(out[link], e.Key[1]); !found {
					out[link] = slices.Insert(out[link], at, e.Key[1])
				}
			}
		}
	}
	return out, nil
}

// counted reports whether tables have elements that count or limit packets: each packet must pass them.
func counted(tables []state.Table) bool {
	return slices.ContainsFunc(tables, func(t state.Table) bool {
		return slices.ContainsFunc(t.Sets, func(s state.Set) bool {
			return slices.ContainsFunc(s.Elements, func(e state.Element) bool { return e.Stateful != "" })
		})
	})
}

// uplinks returns the links of routes to other nodes, and the devices of VXLANs: links with Ethernet headers.
func uplinks(t mesh.Topology) []string {
	ethernet := map[string]bool{}
	for _, u := range t.Underlay {
		ethernet[u.Link] = true
	}
	for _, l := range t.Node.Host.Links {
		if l.VXLAN != nil {
			ethernet[l.Name] = true
		}
	}
	var out []string
	for _, p := range t.Peers {
		for _, r := range p.Routes() {
			if ethernet[r.Link] && !slices.Contains(out, r.Link) {
				out = append(out, r.Link)
			}
		}
	}
	slices.Sort(out)
	return out
}
