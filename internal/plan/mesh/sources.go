// SPDX-License-Identifier: Apache-2.0

package mesh

import (
	"net/netip"

	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/state"
)

// sources returns what the guard accepts, for a tunnel in user space that checks its packets itself.
func (g guard) sources() *Sources {
	out := &Sources{Relays: g.relayed()}
	for _, n := range g.nodes {
		if addrs := addrsOf(n); n.Name != g.p.self.Name && len(addrs) > 0 {
			out.Senders = append(out.Senders, Sender{addrs, g.allowedSources(n, addrs)})
		}
	}
	switch {
	case !g.masqueraded():
		out.Outside = []netip.Prefix{
			netip.PrefixFrom(netip.IPv4Unspecified(), 0), netip.PrefixFrom(netip.IPv6Unspecified(), 0),
		}
	case len(g.p.cfg.NoMasquerade) > 0:
		out.Outside = outermost(g.p.cfg.NoMasquerade)
	default:
		return out
	}
	out.Cluster = outermost(g.cluster())
	return out
}

// senderSets are the peers' addresses with the inner source prefixes of each: sets by family and prefix length, so that
// a lookup is a hash lookup.
type senderSets struct {
	sets []state.Set
	bits [2][]int // lengths by family, longest first
}

// senders returns the peers' addresses and the sets.
func (g guard) senders() (peers []netip.Addr, out senderSets) {
	type size struct{ six, bits int }
	elements := map[size][]state.Element{}
	for _, n := range g.nodes {
		if n.Name == g.p.self.Name {
			continue
		}
		addrs := addrsOf(n)
		peers = append(peers, addrs...)
		for _, prefix := range g.allowedSources(n, addrs) {
			s := size{0, prefix.Bits()}
			if prefix.Addr().Is6() {
				s.six = 1
			}
			for _, a := range addrs {
				if a.Is6() == prefix.Addr().Is6() {
					elements[s] = append(elements[s], state.Element{Key: []string{a.String(), prefix.Addr().String()}})
				}
			}
		}
	}
	for i, kind := range []string{"ipv4_addr", "ipv6_addr"} {
		for bits := 128; bits >= 0; bits-- {
			if e := elements[size{i, bits}]; e != nil {
				out.sets = append(out.sets, state.Set{Name: sourcesName(i, bits), Key: kind + " . " + kind, Elements: e})
				out.bits[i] = append(out.bits[i], bits)
			}
		}
	}
	return peers, out
}

// allowedSources returns the inner source prefixes of a peer's packets: its pods', and its own addresses.
func (g guard) allowedSources(n model.Node, addrs []netip.Addr) []netip.Prefix {
	var out []netip.Prefix
	for _, cidr := range firstPerFamily(n.PodCIDRs) {
		if !g.unusable[claim{n.Name, cidr, ofNode}] {
			out = append(out, cidr)
		}
	}
	for _, s := range g.p.pools.byNode[n.Name] {
		if !g.unusable[claim{n.Name, s.cidr, ofPool}] {
			out = append(out, s.cidr)
		}
	}
	for _, a := range addrs {
		out = append(out, netip.PrefixFrom(a, a.BitLen()))
	}
	return out
}
