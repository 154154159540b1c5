// SPDX-License-Identifier: Apache-2.0

package mesh

import (
	"fmt"
	"slices"
)

// dropDuplicateKeys removes the tunnels to peers with the same public key, as a node and its clone have: a device has
// one peer for a key, and packets for one node would go to the other, which can decrypt them.
func (t *Topology) dropDuplicateKeys() {
	for i := range t.Tunnels {
		tunnel := &t.Tunnels[i]
		holders := map[string][]string{} // nodes by key
		var keys []string
		for _, p := range tunnel.Peers {
			if p.PublicKey == "" || slices.Contains(holders[p.PublicKey], p.Node) {
				continue
			}
			if holders[p.PublicKey] = append(holders[p.PublicKey], p.Node); len(holders[p.PublicKey]) == 2 {
				keys = append(keys, p.PublicKey)
			}
		}
		for _, key := range keys {
			nodes := holders[key]
			tunnel.Peers = slices.DeleteFunc(slices.Clone(tunnel.Peers), func(p TunnelPeer) bool { return p.PublicKey == key })
			for n := range t.Peers {
				if slices.Contains(nodes, t.Peers[n].Name) {
					t.Peers[n].closeRoutes(tunnel.Link)
				}
			}
			problem := Problem{
				nodes, fmt.Sprintf("nodes %s and %s have the same WireGuard key", nodes[0], nodes[1]),
				fmt.Sprintf("delete the file %s of one of them, and restart it; until then the pods of neither are reached",
					tunnel.KeyFile),
			}
			// Devices for IPv4 and IPv6 have the same peers.
			if !slices.ContainsFunc(t.Problems, func(p Problem) bool { return p.Message == problem.Message }) {
				t.add(problem)
			}
		}
	}
}

// closeRoutes makes the routes through a link refuse packets: without them packets would take the default route, in plain
// text.
func (p *Peer) closeRoutes(link string) {
	all := p.Fragment()
	s := all.Host
	s.Routes = slices.Clone(s.Routes)
	for i, r := range s.Routes {
		if r.Link == link {
			s.Routes[i] = refusing(r, unreachable)
		}
	}
	p.SetHost(s, all.Effects)
}
