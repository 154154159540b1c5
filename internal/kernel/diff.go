// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"context"
	"fmt"

	"github.com/weft-net/weft/internal/kernel/interim/link"
	"github.com/weft-net/weft/internal/kernel/nft"
	"github.com/weft-net/weft/internal/state"
)

// Diff tells where the kernel and f disagree; it writes nothing.
func (s Spaces) Diff(ctx context.Context, f state.Fragment) ([]state.Difference, error) {
	var out []state.Difference
	for _, name := range []state.SpaceName{state.Host, state.Pod} {
		want := *f.Space(name)
		if want.Empty() {
			continue
		}
		if s.conn(name) == nil {
			out = append(out, state.Difference{Space: name, Want: "namespace"})
			continue
		}
		v, err := look(name, s.conn(name), want)
		if err != nil {
			return nil, err
		}
		if err := v.readAll(ctx); err != nil {
			return nil, err
		}
		d, err := v.diff(ctx)
		if err != nil {
			return nil, err
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
				have = found.String()
			}
			out.add(v.name, want, have)
		}
	}
	for _, want := range v.want.Routes {
		if found, equal := v.hasRoute(want); !equal {
			have := ""
			if found != nil {
				have = found.String()
			}
			out.add(v.name, want, have)
		}
	}
	for _, want := range v.want.Neighs {
		if found, equal := v.hasNeigh(want); !equal {
			have := ""
			if found != nil {
				have = found.String()
			}
			out.add(v.name, want, have)
		}
	}
	for _, want := range v.want.Rules {
		if !v.hasRule(want) {
			out.add(v.name, want, "")
		}
	}
	for _, want := range v.want.Sysctls {
		if have, equal := v.hasSysctl(want); !equal {
			out.add(v.name, want, have)
		}
	}
	tables, err := v.diffTables(ctx)
	return append(out, tables...), err
}

func (v *view) diffLink(out *list, want state.Link) {
	have, ok := v.links[want.Name]
	switch {
	case !ok:
		out.add(v.name, want, "")
		return
	case foreign(want, have) != nil:
	default:
		_, changed := v.change(want, have)
		if !changed && !differs(want.Up, have.Up) && !bridgeDiffers(want.Bridge, have.Bridge) {
			return
		}
	}
	out.add(v.name, want, v.named(have).String())
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
	d := nft.Diff(v.want.Tables, have)
	for i := range d {
		d[i].Space = v.name
	}
	return d, nil
}
