// SPDX-License-Identifier: Apache-2.0

package attach

import (
	"context"
	"slices"

	"github.com/weft-net/weft/internal/kernel"
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/state"
)

// expectedFragment returns the record's fragment without what later foreign plugins may have changed: the links in the
// container have the MAC of the result, any MTU and any sysctls (tuning), and their routes may be in another table
// (sbr, vrf). A fragment that only changes links that others made is returned as it is.
func expectedFragment(
	ctx context.Context, agent bool, rec Record, prev *model.Result, spaces kernel.Spaces,
) (state.Fragment, error) {
	f := rec.Fragment()
	others := !agent
	for _, act := range rec.Acts {
		others = others || act.Kind == ActExec
	}
	if made := func(l state.Link) bool { return l.Kind != "" || l.MovedFrom != nil }; !others ||
		!slices.ContainsFunc(f.Pod.Links, made) {
		return f, nil
	}
	links := slices.Clone(f.Pod.Links)
	for i := range links {
		links[i].MTU = 0
		for _, iface := range prev.Interfaces {
			if iface.Sandbox == "" || iface.Name != links[i].Name {
				continue
			}
			if mac, err := state.ParseMAC(iface.MAC); err == nil {
				links[i].MAC = mac
			}
		}
	}
	f.Pod.Links, f.Pod.Sysctls = links, nil
	var err error
	f.Pod.Routes, err = dropMovedRoutes(ctx, f.Pod.Routes, spaces)
	return f, err
}

// dropMovedRoutes drops the main table's routes that are in another table.
func dropMovedRoutes(ctx context.Context, routes []state.Route, spaces kernel.Spaces) ([]state.Route, error) {
	var queries []state.Query
	for _, r := range routes {
		if q := (state.Query{Space: state.Pod, Routes: r.Link}); r.Table == 0 && r.Link != "" &&
			!slices.Contains(queries, q) {
			queries = append(queries, q)
		}
	}
	answers, err := spaces.Observe(ctx, queries)
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(slices.Clone(routes), func(r state.Route) bool {
		const main = 254 // RT_TABLE_MAIN
		same := func(o state.Route) bool { return o.Dst == r.Dst && o.Gw == r.Gw }
		moved := func(o state.Route) bool { return same(o) && o.Table != main }
		there := func(o state.Route) bool { return same(o) && o.Table == main }
		have := answers[state.Query{Space: state.Pod, Routes: r.Link}].Routes
		return r.Table == 0 && slices.ContainsFunc(have, moved) && !slices.ContainsFunc(have, there)
	}), nil
}
