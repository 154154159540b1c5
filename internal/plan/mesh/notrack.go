// SPDX-License-Identifier: Apache-2.0

package mesh

import (
	"slices"
	"strconv"

	"github.com/weft-net/weft/internal/state"
)

// NotrackTable is the name of the table that keeps the outer packets of tunnels out of connection tracking: that would
// be pure cost, and an entry for each pair of ports that the kernel takes.
const NotrackTable = "weft-notrack"

// Tables are the names of all the tables that a mesh may have, in the family inet.
func Tables() []string { return []string{MasqueradeTable, NotrackTable, DSCPTable, GuardTable} }

// notrack is about what the node itself sends and receives; what it passes on for others is theirs.
func notrack(ports []uint16) state.Table {
	raw := func(name, local string) state.Chain {
		c := state.Chain{Name: name, Type: "filter", Hook: name, Priority: -300, Policy: "accept"}
		for _, port := range slices.Compact(slices.Sorted(slices.Values(ports))) {
			// The port first: the other question costs a look into the routes, and every packet of a pod comes by here.
			c.Rules = append(c.Rules, state.NftRule{Text: "udp dport " + strconv.Itoa(int(port)) + " " + local + " notrack"})
		}
		return c
	}
	return state.Table{Family: "inet", Name: NotrackTable, Chains: []state.Chain{
		raw("prerouting", "fib daddr type local"), raw("output", "fib saddr type local"),
	}}
}
