// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"context"
	"fmt"
	"slices"

	"github.com/weft-net/weft/internal/kernel/link"
	"github.com/weft-net/weft/internal/kernel/nft/lang"
	"github.com/weft-net/weft/internal/state"
)

// Diff tells where the kernel and f disagree; it writes nothing.
func (s Spaces) Diff(ctx context.Context, f state.Fragment) ([]state.Difference, error) {
	var out []state.Difference
	views := map[state.SpaceName]*view{}
	for _, name := range []state.SpaceName{state.Host, state.Pod} {
		want := *f.Space(name)
		if s.conn(name) == nil && !want.Empty() {
			out = append(out, state.Difference{Space: name, Want: "namespace"})
		}
		v := newView(name, s.conn(name), want)
		v.also = parents(f, name)
		if err := v.look(ctx); err != nil {
			return nil, err
		}
		for name, have := range v.links {
			if dead(have) {
				delete(v.links, name)
			}
		}
		views[name] = v
	}
	for _, name := range []state.SpaceName{state.Host, state.Pod} {
		v := views[name]
		if v.conn == nil {
			continue
		}
		v.others = func(name state.SpaceName) *view { return views[name] }
		if err := v.readAll(ctx); err != nil {
			return nil, err
		}
		d, err := v.diff(ctx)
		if err != nil {
			return nil, in(name, err)
		}
		out = append(out, d...)
	}
	return out, nil
}

type list []state.Difference

func (l *list) add(space state.SpaceName, want fmt.Stringer, have string) {
	*l = append(*l, state.Difference{Space: space, Want: want.String(), Have: have})
}

func (v *view) diff(ctx context.Context) ([]state.Difference, error) {
	var out list
	for _, want := range v.want.Links {
		v.diffLink(&out, want)
	}
	for _, want := range v.want.Addrs {
		if found, equal := v.hasAddr(want); !equal {
			have := ""
			if found != nil {
				have = sayAddr(want, *found)
			}
			out.add(v.name, want, have)
		}
	}
	for _, want := range v.want.Routes {
		if found, equal := v.hasRoute(want); !equal {
			have := ""
			if found != nil {
				found.Link = want.Link
				have = found.String()
			}
			out.add(v.name, want, have)
		}
	}
	for _, want := range v.want.Neighs {
		if found, equal := v.hasNeigh(want); !equal {
			have := ""
			if found != nil {
				found.Link = want.Link
				have = found.String()
			}
			out.add(v.name, want, have)
		}
	}
	v.diffFDBs(&out)
	v.diffSettings(&out)
	tables, err := v.diffTables(ctx)
	if err != nil {
		return out, err
	}
	chains, err := v.diffIPTables(ctx)
	if err != nil {
		return out, err
	}
	sources, err := v.diffSources(ctx)
	return slices.Concat(out, tables, chains, sources), err
}

// diffSettings is the rest of what rtnetlink and sysctls hold.
func (v *view) diffSettings(out *list) {
	for _, want := range v.want.Rules {
		if !v.hasRule(want) {
			out.add(v.name, want, "")
		}
	}
	for _, want := range v.want.Sysctls {
		if have, equal := v.hasSysctl(want); !equal && !v.values[want.Name].Hidden {
			out.add(v.name, want, have)
		}
	}
	v.diffJoins(out)
	for _, want := range v.want.Qdiscs {
		if have, equal := v.hasQdisc(want); !equal {
			out.add(v.name, want, have)
		}
	}
}

func (v *view) diffLink(out *list, want state.Link) {
	have, ok := v.links[want.Name]
	if !ok {
		out.add(v.name, want, "")
		return
	}
	_, changed := v.change(want, have)
	if changed || foreign(want, have) != nil || differs(want.Up, have.Up) || differs(want.TxChecksum, have.TxChecksum) || attrsDiffer(want, have) || v.parentDiffers(want, have) ||
		v.portDiffers(want, have) || want.Kind != "" && want.Kind != have.Kind {
		out.add(v.name, want, v.named(have).String())
		return
	}
	if says, differ := v.saysVlans(want, have); differ {
		out.add(v.name, want, v.named(have).String()+" "+says)
		return
	}
	if want.Kind != state.Veth || want.Peer == nil || v.others == nil || v.others(want.Peer.Space).conn == nil {
		return
	}
	if err := pairError(want, have, v.others(want.Peer.Space).links); err != nil {
		out.add(v.name, want, err.Error())
	}
}

// named is a link with its master's name, as far as the view knows it.
func (v *view) named(f link.Found) state.Link {
	for name, l := range v.links {
		if f.MasterIndex != 0 && l.Index == f.MasterIndex {
			f.Master = name
		}
	}
	return f.Link
}

func (v *view) diffTables(ctx context.Context) ([]state.Difference, error) {
	if len(v.want.Tables) == 0 {
		return nil, nil
	}
	n, err := v.conn.tables()
	if err != nil {
		return nil, err
	}
	have, err := n.Read(ctx, v.want.Tables)
	if err != nil {
		return nil, fmt.Errorf("nft: %w", err)
	}
	d := lang.Diff(v.want.Tables, have)
	for i := range d {
		d[i].Space = v.name
	}
	return d, nil
}

// sayAddr is an address that differs, with what its String does not tell.
func sayAddr(want state.Addr, found link.FoundAddr) string {
	found.Link = want.Link
	s := found.String()
	if found.Failed {
		return s + " (somebody else has it)"
	}
	if found.NoPrefixRoute != want.NoPrefixRoute {
		s += fmt.Sprintf(" (noprefixroute %t)", found.NoPrefixRoute)
	}
	return s
}
