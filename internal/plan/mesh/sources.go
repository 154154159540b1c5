// SPDX-License-Identifier: Apache-2.0

package mesh

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

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

// The sets of senders are the peers' addresses, and these with the inner source prefixes of each: sets by family and
// prefix length, so that a lookup is a hash lookup. They have several elements for each peer, so the plan of a large
// cluster is kept without: they follow from the peers.

// size is the size of prefixes: 1 for IPv6, and their length.
type size struct{ six, bits int }

func sizeOf(p netip.Prefix) size {
	if p.Addr().Is6() {
		return size{1, p.Bits()}
	}
	return size{0, p.Bits()}
}

// senderSets are how many elements the sets of senders have, by the size of the inner source prefixes.
type senderSets map[size]int

// senders counts the elements.
func (g guard) senders() senderSets {
	out := senderSets{}
	for _, n := range g.nodes {
		if n.Name != g.p.self.Name {
			addrs := addrsOf(n)
			out.count(addrs, g.allowedSources(n, addrs), 1)
		}
	}
	return out
}

// count adds the elements of a node times sign.
func (s senderSets) count(addrs []netip.Addr, allowed []netip.Prefix, sign int) {
	for _, prefix := range allowed {
		for _, a := range addrs {
			if a.Is6() == prefix.Addr().Is6() {
				s[sizeOf(prefix)] += sign
			}
		}
	}
}

// bits returns the lengths of prefixes of a family, longest first.
func (s senderSets) bits(six int) (out []int) {
	for bits := 128; bits >= 0; bits-- {
		if s[size{six, bits}] > 0 {
			out = append(out, bits)
		}
	}
	return out
}

// sets returns the sets of sources without elements.
func (s senderSets) sets() (out []state.Set) {
	for six, kind := range []string{"ipv4_addr", "ipv6_addr"} {
		for _, bits := range s.bits(six) {
			out = append(out, state.Set{Name: sourcesName(six, bits), Key: kind + " . " + kind})
		}
	}
	return out
}

// senderElements are sets of senders by what they have, to which elements are added.
type senderElements struct {
	peers   [2]*state.Set
	sources map[size]*state.Set // those of the table
}

// elementsOf returns the sets of senders among those of a guard's table.
func elementsOf(sets []state.Set) senderElements {
	out := senderElements{sources: map[size]*state.Set{}}
	for i := range sets {
		var family, bits int
		if _, err := fmt.Sscanf(sets[i].Name, "peers%d", &family); err == nil {
			out.peers[family/2-2] = &sets[i]
		} else if _, err := fmt.Sscanf(sets[i].Name, "sources%d/%d", &family, &bits); err == nil {
			out.sources[size{family/2 - 2, bits}] = &sets[i]
		}
	}
	return out
}

// add adds a node's elements.
func (e senderElements) add(addrs []netip.Addr, allowed []netip.Prefix) {
	for _, a := range addrs {
		s := e.peers[a.BitLen()/128]
		s.Elements = append(s.Elements, state.Element{Key: []string{a.String()}})
	}
	if len(e.sources) == 0 {
		return
	}
	for _, prefix := range allowed {
		s := e.sources[sizeOf(prefix)]
		for _, a := range addrs {
			if a.Is6() == prefix.Addr().Is6() {
				s.Elements = append(s.Elements, state.Element{Key: []string{a.String(), prefix.Addr().String()}})
			}
		}
	}
}

// fill adds the elements of the nodes to the sets of senders of the topology's guard.
func (g guard) fill(t *Topology) {
	into := elementsOf(t.guardSets())
	for _, n := range g.nodes {
		if n.Name != g.p.self.Name {
			addrs := addrsOf(n)
			into.add(addrs, g.allowedSources(n, addrs))
		}
	}
}

// guardSets returns the sets of the guard's table.
func (t *Topology) guardSets() []state.Set {
	for _, table := range t.Node.Host.Tables {
		if table.Name == GuardTable {
			return table.Sets
		}
	}
	return nil
}

// IsBare reports whether the sets of senders in Node have no elements: each peer has its PeerElements.
func (t Topology) IsBare() bool { return t.bare }

// Whole returns the topology with all elements of sets.
func (t Topology) Whole() Topology {
	if !t.bare {
		return t
	}
	t.bare = false
	t.Node.Host.Tables = slices.Clone(t.Node.Host.Tables)
	for i := range t.Node.Host.Tables {
		table := &t.Node.Host.Tables[i]
		if table.Name != GuardTable {
			continue
		}
		table.Sets = slices.Clone(table.Sets)
		into := elementsOf(table.Sets)
		for _, s := range into.peers {
			s.Elements = make([]state.Element, 0, len(t.Peers))
		}
		for _, p := range t.Peers {
			into.add(p.Addrs, p.allowedSources())
		}
		for _, s := range into.peers {
			if len(s.Elements) == 0 {
				s.Elements = nil
			}
		}
	}
	return t
}

// PeerElements returns the sets of senders with the elements of one peer, and those without any; nil if the topology is not
// bare.
func (t Topology) PeerElements(p *Peer) []state.Set {
	if !t.bare {
		return nil
	}
	sets := slices.DeleteFunc(slices.Clone(t.guardSets()), func(s state.Set) bool {
		return !strings.HasPrefix(s.Name, "peers") && !strings.HasPrefix(s.Name, "sources")
	})
	elementsOf(sets).add(p.Addrs, p.allowedSources())
	return sets
}

// allowedSources is guard's, for a peer that nothing contradicts.
func (p *Peer) allowedSources() []netip.Prefix {
	out := slices.Concat(p.PodCIDRs, p.Blocks)
	for _, a := range p.Addrs {
		out = append(out, netip.PrefixFrom(a, a.BitLen()))
	}
	return out
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
