// SPDX-License-Identifier: Apache-2.0

package mesh

import (
	"slices"
	"strconv"

	"github.com/weft-net/weft/internal/state"
)

// NotrackTable is the name of the table that exempts the outer packets of tunnels from connection tracking: it would
// only cost time, and an entry for each pair of ports that the kernel uses.
const NotrackTable = "weft-notrack"

// Tables returns the names of all tables that a mesh may have, in the family inet.
func Tables() []string { return []string{MasqueradeTable, NotrackTable, DSCPTable, GuardTable} }

// notrack exempts what the node itself sends and receives; forwarded packets are tracked.
func notrack(ports []uint16) state.Table {
	raw := func(name, local string) state.Chain {
		c := state.Chain{Name: name, Type: "filter", Hook: name, Priority: -300, Policy: "accept"}
		for _, port := range slices.Compact(slices.Sorted(slices.Values(ports))) {
			// The port is compared first: fib needs a route lookup, and every packet of a pod passes this chain.
			c.Rules = append(c.Rules, state.NftRule{Text: "udp dport " + strconv.Itoa(int(port)) + " " + local + " notrack"})
		}
		return c
	}
	return state.Table{Family: "inet", Name: NotrackTable, Chains: []state.Chain{
		raw("prerouting", "fib daddr type local"), raw("output", "fib saddr type local"),
	}}
}
