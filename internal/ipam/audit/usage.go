// SPDX-License-Identifier: Apache-2.0

package audit

import (
	"cmp"
	"math/big"
	"net/netip"
	"slices"
	"strings"

	"github.com/weft-net/weft/internal/model"
)

// Usage is how much of a pool, a block or a node's range is in use.
type Usage struct {
	Pool string `json:"pool,omitempty"`
	// Node is the node of the block or the range.
	Node string        `json:"node,omitempty"`
	CIDR *netip.Prefix `json:"cidr,omitempty"` // of blocks and ranges
	// Total counts all allocatable addresses, Used those that a pod, a claim or a reservation has. Free is the rest
	// without excluded ones.
	Total *big.Int `json:"total"`
	Used  int      `json:"used"`
	Free  *big.Int `json:"free"`
}

// Usages is the usage of pools, blocks and ranges.
type Usages struct {
	Pools  []Usage `json:"pools,omitempty"`
	Blocks []Usage `json:"blocks,omitempty"`
	// Ranges are the nodes' own prefixes, where the cluster's network has no pools.
	Ranges []Usage `json:"ranges,omitempty"`
	// Known: it is known which addresses are in use. Otherwise Used is 0 and has no meaning.
	Known bool `json:"known"`
}

// Usage counts addresses in use, by the datastore and by the state of nodes.
func (p *Report) Usage(nodes ...NodeState) Usages {
	taken := p.taken(nodes)
	u := Usages{Known: len(taken) > 0 || len(nodes) > 0 || len(p.pods) > 0 && !p.pods.anyUnreported()}
	ofPool := false
	for _, pool := range p.Pools {
		ofPool = ofPool || pool.AssignmentMode != ""
		regions := make([]netip.Prefix, 0, len(pool.Regions))
		for _, r := range pool.Regions {
			regions = append(regions, r.CIDR)
		}
		u.Pools = append(u.Pools, usageOf(Usage{Pool: pool.Name}, regions, pool, taken))
	}
	for _, b := range p.Blocks {
		pool := model.AddressPool{}
		if found := p.pool(b.Pool); found != nil {
			pool = *found
		}
		u.Blocks = append(u.Blocks,
			usageOf(Usage{Pool: b.Pool, Node: b.Node, CIDR: &b.CIDR}, []netip.Prefix{b.CIDR}, pool, taken))
	}
	if ofPool {
		return u
	}
	for _, name := range sortedKeys(p.ranges) {
		for _, cidr := range p.ranges[name] {
			one := usageOf(Usage{Node: name, CIDR: &cidr}, []netip.Prefix{cidr}, model.AddressPool{}, taken)
			// host-local allocates neither the network's own address, nor the gateway's, nor the broadcast address.
			kept := int64(2)
			if cidr.Addr().Is4() {
				kept++
			}
			one.Total.Sub(one.Total, big.NewInt(kept))
			one.Free.Sub(one.Free, big.NewInt(kept))
			u.Ranges = append(u.Ranges, positive(one))
		}
	}
	return u
}

// taken returns the addresses in use, sorted.
func (p *Report) taken(nodes []NodeState) []netip.Addr {
	var out []netip.Addr
	for _, one := range p.pods {
		if !one.finished {
			out = append(out, one.addrs...)
		}
	}
	for a := range p.claimed {
		out = append(out, a)
	}
	for a := range p.services {
		out = append(out, a)
	}
	for _, pool := range p.Pools {
		for _, r := range pool.Reserved {
			out = append(out, r.Addr)
		}
	}
	for _, l := range nodes {
		for _, h := range l.Held {
			out = append(out, h.Addr)
		}
		for _, r := range l.Ledger {
			out = append(out, r.Addrs...)
		}
		for _, f := range l.HostLocal {
			for _, e := range f.Entries {
				out = append(out, e.Addr)
			}
		}
	}
	slices.SortFunc(out, netip.Addr.Compare)
	return slices.Compact(out)
}

// usageOf counts the addresses in use in some prefixes of a pool.
func usageOf(u Usage, parts []netip.Prefix, pool model.AddressPool, taken []netip.Addr) Usage {
	u.Total = new(big.Int)
	var used []netip.Addr
	for _, part := range parts {
		u.Total.Add(u.Total, sizeOf(part))
		used = append(used, within(taken, part)...)
	}
	u.Used = len(used)
	u.Free = new(big.Int).Sub(u.Total, big.NewInt(int64(u.Used)))
	for _, out := range excludedOf(parts, pool) {
		size := sizeOf(out)
		u.Free.Sub(u.Free, size.Sub(size, big.NewInt(int64(len(within(used, out))))))
	}
	return positive(u)
}

func positive(u Usage) Usage {
	for _, n := range []*big.Int{u.Total, u.Free} {
		if n.Sign() < 0 {
			n.SetInt64(0)
		}
	}
	return u
}

// within returns those of sorted addresses that a prefix contains.
func within(sorted []netip.Addr, p netip.Prefix) []netip.Addr {
	begin, _ := slices.BinarySearchFunc(sorted, p.Masked().Addr(), netip.Addr.Compare)
	end := begin
	for end < len(sorted) && p.Contains(sorted[end]) {
		end++
	}
	return sorted[begin:end]
}

// excludedOf returns the excluded parts of some prefixes of a pool, without duplicates.
func excludedOf(parts []netip.Prefix, pool model.AddressPool) []netip.Prefix {
	var all []netip.Prefix
	for _, e := range pool.Excluded {
		for _, part := range parts {
			switch {
			case !part.Overlaps(e.CIDR):
			case part.Bits() > e.CIDR.Bits():
				all = append(all, part.Masked())
			default:
				all = append(all, e.CIDR.Masked())
			}
		}
	}
	slices.SortFunc(all, func(a, b netip.Prefix) int { return cmp.Compare(a.Bits(), b.Bits()) })
	var out []netip.Prefix
	for _, e := range all {
		if !slices.ContainsFunc(out, e.Overlaps) { // a larger one contains it
			out = append(out, e)
		}
	}
	return out
}

func sizeOf(p netip.Prefix) *big.Int {
	return new(big.Int).Lsh(big.NewInt(1), uint(p.Addr().BitLen()-p.Bits()))
}

func sortedKeys(m map[string][]netip.Prefix) []string {
	var out []string
	for k := range m {
		out = append(out, k)
	}
	slices.SortFunc(out, strings.Compare)
	return out
}
