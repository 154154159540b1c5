// SPDX-License-Identifier: Apache-2.0

package mesh

import (
	"fmt"
	"slices"

	"github.com/weft-net/weft/internal/state"
)

// sameVteps takes away what leads to peers that publish one VtepMAC: a device knows one place for an address, and what
// is for one of them would go to the other.
func (t *Topology) sameVteps() {
	type end struct {
		link string
		mac  state.MAC
	}
	holders := make(map[end]int, len(t.Peers))
	twice := map[end][]int{}
	for i, p := range t.Peers {
		for _, f := range p.Fragment.Host.FDBs {
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
			t.Peers[i].without(e.link, e.mac)
			names = append(names, t.Peers[i].Name)
		}
		t.add(Problem{
			names, fmt.Sprintf("nodes %s and %s both have the VtepMAC %s", names[0], names[1], e.mac),
			"delete " + e.link + " and what one of them publishes, and restart it; until then neither's pods are reached",
		})
	}
	if len(twice) > 1 {
		slices.SortStableFunc(t.Problems, func(a, b Problem) int { return slices.Compare(a.Nodes, b.Nodes) })
	}
}

// without takes a tunnel away.
func (p *Peer) without(link string, mac state.MAC) {
	s := p.Fragment.Host
	s.FDBs = slices.DeleteFunc(slices.Clone(s.FDBs), func(f state.FDB) bool { return f.Link == link && f.MAC == mac })
	for _, n := range p.Fragment.Host.Neighs {
		if n.Link == link && n.MAC == mac {
			s.Routes = slices.DeleteFunc(slices.Clone(s.Routes), func(r state.Route) bool {
				return r.Link == link && r.Gw == n.IP
			})
		}
	}
	s.Neighs = slices.DeleteFunc(slices.Clone(s.Neighs), func(n state.Neigh) bool {
		return n.Link == link && n.MAC == mac
	})
	p.Fragment.Host = s
}
