// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"context"
	"fmt"

	"github.com/weft-net/weft/internal/kernel/link"
	"github.com/weft-net/weft/internal/state"
)

// Diff returns the differences between the kernel and f; it writes nothing.
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
		if err := v.readLinks(ctx); err != nil {
			return nil, err
		}
		v.links.withoutDead()
		views[name] = v
	}
	for _, name := range []state.SpaceName{state.Host, state.Pod} {
		v := views[name]
		if v.conn == nil {
			continue
		}
		v.settings.others = func(name state.SpaceName) map[string]link.Found {
			if views[name].conn == nil {
				return nil
			}
			return views[name].links.found
		}
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

// diffs collects the differences in a space.
type diffs struct {
	space state.SpaceName
	all   []state.Difference
}

func (d *diffs) add(want fmt.Stringer, have string) {
	d.all = append(d.all, state.Difference{Space: d.space, Want: want.String(), Have: have})
}

func (d *diffs) addAll(all []state.Difference) {
	for _, one := range all {
		one.Space = d.space
		d.all = append(d.all, one)
	}
}

func (v *view) diff(ctx context.Context) ([]state.Difference, error) {
	out := diffs{space: v.name}
	for _, p := range v.parts() {
		p.diff(&out)
	}
	err := v.filters.diff(ctx, &out)
	return out.all, err
}
