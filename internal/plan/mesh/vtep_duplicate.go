// SPDX-License-Identifier: Apache-2.0

package mesh

import (
	"fmt"
	"slices"

	"github.com/weft-net/weft/internal/state"
)

// dropDuplicateVTEPs removes the routes to peers with the same VtepMAC: a device has one destination for a MAC address,
// and packets for one peer would go to the other.
func (t *Topology) dropDuplicateVTEPs() {
	type end struct {
		link string
		mac  state.MAC
	}
	holders := make(map[end]int, len(t.Peers))
	twice := map[end][]int{}
	for i, p := range t.Peers {
		for _, f := range p.FDBs() {
			e := end{f.Link, f.MAC}
			first, taken := holders[e]
			if !taken {
				holders[e] = i
				continue
			}
			if len(twice[e]) == 0 {
				twice[e] = []int{first}
			}
			twice[e] = append(twice[e], i)
		}
	}
	for e, peers := range twice {
		var names []string
		for _, i := range peers {
			t.Peers[i].dropTunnel(e.link, e.mac)
			names = append(names, t.Peers[i].Name)
		}
		t.add(Problem{
			names, fmt.Sprintf("nodes %s and %s both have the VtepMAC %s", names[0], names[1], e.mac),
			"on one of them, delete " + e.link + " and its annotation, and restart the agent; until then the pods of neither are reached",
		})
	}
	if len(twice) > 1 {
		slices.SortStableFunc(t.Problems, func(a, b Problem) int { return slices.Compare(a.Nodes, b.Nodes) })
	}
}

// dropTunnel removes the routes through a tunnel.
func (p *Peer) dropTunnel(link string, mac state.MAC) {
	all := p.Fragment()
	s := all.Host
	s.FDBs = slices.DeleteFunc(slices.Clone(s.FDBs), func(f state.FDB) bool { return f.Link == link && f.MAC == mac })
	for _, n := range p.Neighs() {
		if n.Link == link && n.MAC == mac {
			s.Routes = slices.DeleteFunc(slices.Clone(s.Routes), func(r state.Route) bool {
				return r.Link == link && r.Gw == n.IP
			})
		}
	}
	s.Neighs = slices.DeleteFunc(slices.Clone(s.Neighs), func(n state.Neigh) bool {
		return n.Link == link && n.MAC == mac
	})
	p.SetHost(s, all.Effects)
}
