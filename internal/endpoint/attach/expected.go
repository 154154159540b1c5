// SPDX-License-Identifier: Apache-2.0

package attach

import (
	"context"
	"slices"

	"github.com/weft-net/weft/internal/kernel"
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/state"
)

// expected is the record's fragment, less what plugins behind the planned ones may have changed: where others follow,
// the container's links have the MAC that the result says, any MTU, and any settings (tuning is such a plugin), and
// their routes may be in another table (sbr, vrf). What a plugin says of a link that it does not make is what it is
// there for, and stays.
func expected(
	ctx context.Context, agent bool, rec Record, prev *model.Result, spaces kernel.Spaces,
) (state.Fragment, error) {
	f := rec.Fragment()
	others := !agent
	for _, act := range rec.Acts {
		others = others || act.Kind == ActExec
	}
	if made := func(l state.Link) bool { return l.Kind != "" || l.From != nil }; !others ||
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
	f.Pod.Routes, err = notMoved(ctx, f.Pod.Routes, spaces)
	return f, err
}

// notMoved leaves out the routes of the main table that are in another one.
func notMoved(ctx context.Context, routes []state.Route, spaces kernel.Spaces) ([]state.Route, error) {
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
		elsewhere := func(o state.Route) bool { return same(o) && o.Table != main }
		there := func(o state.Route) bool { return same(o) && o.Table == main }
		have := answers[state.Query{Space: state.Pod, Routes: r.Link}].Routes
		return r.Table == 0 && slices.ContainsFunc(have, elsewhere) && !slices.ContainsFunc(have, there)
	}), nil
}
