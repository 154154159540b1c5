// SPDX-License-Identifier: Apache-2.0

package mesh

import (
	"net/netip"

	"github.com/weft-net/weft/internal/state"
)

// Relay is a VM that migrates to self, or has just migrated: peers that do not know it yet send its packets to the node
// where it ran before, and that node forwards them with the senders' own addresses.
type Relay struct {
	// From is the name of the node where the VM ran before.
	From string
	// To is an address of the VM.
	To netip.Addr
}

// relays returns the sets and rules that accept forwarded packets: from that node, to that VM, and with a peer's source
// address.
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
			all = append(all, g.allowedSources(n, addrsOf(n))...)
		}
	}
	return append(sets, prefixSets("senders", all)...), []string{
		"%[1]s saddr . %[4]s @relays%[2]s %[3]s @senders%[2]s accept",
	}
}

// relayed returns the relays by the nodes' addresses.
func (g guard) relayed() []RelayedAddr {
	var out []RelayedAddr
	for _, r := range g.p.cfg.Relays {
		for _, n := range g.nodes {
			if n.Name != r.From || n.Name == g.p.self.Name {
				continue
			}
			for _, a := range addrsOf(n) {
				if a.Is6() == r.To.Is6() {
					out = append(out, RelayedAddr{a, r.To})
				}
			}
		}
	}
	return out
}
