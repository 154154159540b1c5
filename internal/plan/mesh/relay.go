// SPDX-License-Identifier: Apache-2.0

package mesh

import (
	"net/netip"

	"github.com/weft-net/weft/internal/state"
)

// Relay is a machine that comes to self, or has just come: nodes that do not know it yet still send what is for it to
// where it was, and that node passes it on, with the senders' own addresses in it.
type Relay struct {
	// From is the name of the node where the machine was.
	From string
	// To is an address of the machine.
	To netip.Addr
}

// relays are the sets and the rules by which what is passed on is accepted: of that node, for that machine, and from
// what is a peer's.
func (g guard) relays() ([]state.Set, []string) {
	pairs := g.relayed()
	if len(pairs) == 0 {
		return nil, nil
	}
	sets := []state.Set{{Name: "relays4", Key: "ipv4_addr . ipv4_addr"}, {Name: "relays6", Key: "ipv6_addr . ipv6_addr"}}
	for _, r := range pairs {
		s := &sets[0]
		if r.From.Is6() {
			s = &sets[1]
		}
		s.Elements = append(s.Elements, state.Element{Key: []string{r.From.String(), r.To.String()}})
	}
	var all []netip.Prefix
	for _, n := range g.nodes {
		if n.Name != g.p.self.Name {
			all = append(all, g.sends(n, addrsOf(n))...)
		}
	}
	return append(sets, prefixSets("senders", all)...), []string{
		"%[1]s saddr . %[4]s @relays%[2]s %[3]s @senders%[2]s accept",
	}
}

// relayed are the relays by the nodes' addresses.
func (g guard) relayed() []RelayedTo {
	var out []RelayedTo
	for _, r := range g.p.cfg.Relays {
		for _, n := range g.nodes {
			if n.Name != r.From || n.Name == g.p.self.Name {
				continue
			}
			for _, a := range addrsOf(n) {
				if a.Is6() == r.To.Is6() {
					out = append(out, RelayedTo{a, r.To})
				}
			}
		}
	}
	return out
}
