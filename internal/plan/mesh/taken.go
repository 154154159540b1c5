// SPDX-License-Identifier: Apache-2.0

package mesh

import (
	"net/netip"
	"slices"

	"github.com/weft-net/weft/internal/state"
)

// taken is what the nodes of a plan have that no other node may have, so that a node that joins need not be compared
// with thousands.
type taken struct {
	// prefixes are the nodes' addresses and the prefixes of their pods, sorted. None overlaps another.
	prefixes []netip.Prefix
	metrics  map[uint32]bool // of the routes to peers
	vteps    map[vtepAt]bool
}

// vtepAt is a VTEP's MAC on a VXLAN device.
type vtepAt struct {
	link string
	mac  state.MAC
}

// newTaken returns what self and the peers have; false if prefixes overlap.
func newTaken(p *Planner, peers []*Peer) (*taken, bool) {
	t := &taken{metrics: make(map[uint32]bool, len(peers)), vteps: map[vtepAt]bool{}}
	self, held := p.self, p.pools.byNode
	t.prefixes = make([]netip.Prefix, 0, 2*len(peers)+64)
	t.prefixes = appendClaims(t.prefixes, addrsOf(self), firstPerFamily(self.PodCIDRs), held[self.Name])
	for _, o := range peers {
		t.prefixes = appendClaims(t.prefixes, o.Addrs, o.PodCIDRs, held[o.Name])
		t.note(o, true)
	}
	slices.SortFunc(t.prefixes, comparePrefix)
	for i := 1; i < len(t.prefixes); i++ {
		if t.prefixes[i-1].Overlaps(t.prefixes[i]) {
			return nil, false
		}
	}
	return t, true
}

// appendClaims appends a node's addresses and the prefixes of its pods that no other node may have: all but borrowed
// addresses. Each is there once.
func appendClaims(to []netip.Prefix, addrs []netip.Addr, podCIDRs []netip.Prefix, blocks []routedBlock) []netip.Prefix {
	begin := len(to)
	for _, a := range addrs {
		to = append(to, netip.PrefixFrom(a, a.BitLen()))
	}
	for _, p := range podCIDRs {
		to = append(to, p.Masked())
	}
	for i := range blocks {
		if !blocks[i].cidr.IsSingleIP() {
			to = append(to, blocks[i].cidr)
		}
	}
	own := to[begin:]
	slices.SortFunc(own, comparePrefix)
	return to[:begin+len(slices.Compact(own))]
}

// add adds prefixes; false if one overlaps another.
func (t *taken) add(prefixes []netip.Prefix) bool {
	for _, p := range prefixes {
		i, _ := slices.BinarySearchFunc(t.prefixes, p, comparePrefix)
		if i > 0 && t.prefixes[i-1].Overlaps(p) || i < len(t.prefixes) && t.prefixes[i].Overlaps(p) {
			return false // what contains it is sorted before it, what it contains after it
		}
		t.prefixes = slices.Insert(t.prefixes, i, p)
	}
	return true
}

// drop removes prefixes.
func (t *taken) drop(prefixes []netip.Prefix) {
	for _, p := range prefixes {
		if i, ok := slices.BinarySearchFunc(t.prefixes, p, comparePrefix); ok {
			t.prefixes = slices.Delete(t.prefixes, i, i+1)
		}
	}
}

// note adds or removes a peer's metrics and VTEPs.
func (t *taken) note(p *Peer, has bool) {
	for i := range p.Routes() {
		if m := p.Routes()[i].Metric; has {
			t.metrics[m] = true
		} else {
			delete(t.metrics, m)
		}
	}
	for _, f := range p.FDBs() {
		if at := (vtepAt{f.Link, f.MAC}); has {
			t.vteps[at] = true
		} else {
			delete(t.vteps, at)
		}
	}
}
