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

// pools are the cluster's pools and blocks, indexed for one plan. Its zero value is a cluster without any.
type pools struct {
	all []model.AddressPool // those of the cluster's network
	// byNode are the prefixes of each node's pods: its blocks, then single addresses that it borrows from other nodes'
	// blocks, then unmanaged addresses.
	byNode map[string][]routedBlock
}

// routedBlock is a block, a borrowed address of another node's block, or an unmanaged address.
type routedBlock struct {
	cidr          netip.Prefix
	encapsulation model.Encapsulation
	unmanaged     bool
}

// gather returns the pools and blocks of the cluster's network, and unmanaged addresses.
func gather(c *model.Cluster, cfg Config) (pools, []Problem) {
	out, problems := gatherPools(c, cfg)
	return out, append(problems, out.addUnmanaged(c.Nodes, cfg)...)
}

// gatherPools returns the pools and blocks of the cluster's network.
func gatherPools(c *model.Cluster, cfg Config) (out pools, problems []Problem) {
	if !cfg.Pools {
		return pools{}, nil
	}
	named := map[string]model.AddressPool{}
	for _, p := range c.Pools {
		if p.IsClusterPool() {
			out.all, named[p.Name] = append(out.all, p), p
		}
	}
	if len(out.all) == 0 {
		return out, nil
	}
	nodes := make(map[string]bool, len(c.Nodes))
	for _, n := range c.Nodes {
		nodes[n.Name] = true
	}
	out.byNode = make(map[string][]routedBlock, len(nodes))
	singles := map[string][]routedBlock{}
	for _, b := range c.Blocks {
		pool, ok := named[b.Pool]
		if !ok {
			continue // of another network, or of a pool that is not in the cache yet
		}
		if pool = out.currentPool(pool, b.CIDR); !poolContains(pool, b.CIDR) {
			problems = append(problems, Problem{
				[]string{b.Node},
				fmt.Sprintf("block %s of node %s is outside of its pool %s", b.CIDR, b.Node, b.Pool),
				"add the block's region to the pool again; until then its pods are not reached",
			})
			continue
		}
		how := pool.Encapsulation
		if nodes[b.Node] {
			out.byNode[b.Node] = append(out.byNode[b.Node], routedBlock{cidr: b.CIDR.Masked(), encapsulation: how})
		} else {
			problems = append(problems, Problem{
				[]string{b.Node},
				fmt.Sprintf("node %s has blocks but is not in the cluster", b.Node),
				"its blocks are reclaimed after a while; `weft ipam check` shows them",
			})
		}
		for _, a := range lentAddrs(b) {
			if holder, _, _ := strings.Cut(b.Lent[a], "/"); holder != b.Node && nodes[holder] {
				singles[holder] = append(singles[holder], routedBlock{cidr: netip.PrefixFrom(a, a.BitLen()), encapsulation: how})
			}
		}
	}
	for node, more := range singles {
		out.byNode[node] = append(out.byNode[node], more...)
	}
	return out, problems
}

// currentPool returns the pool that has a block's addresses: its own, or the one that its region was moved to.
func (p pools) currentPool(own model.AddressPool, cidr netip.Prefix) model.AddressPool {
	if poolContains(own, cidr) {
		return own
	}
	if i := slices.IndexFunc(p.all, func(o model.AddressPool) bool { return poolContains(o, cidr) }); i >= 0 {
		return p.all[i]
	}
	return own
}

// poolContains reports whether a pool contains a prefix.
func poolContains(p model.AddressPool, cidr netip.Prefix) bool {
	return slices.ContainsFunc(
		p.Regions,
		func(r model.AddressRegion) bool { return isWithin(cidr, []netip.Prefix{r.CIDR}) },
	)
}

// lentAddrs returns the addresses of a block that other nodes borrow, sorted.
func lentAddrs(b model.AddressBlock) []netip.Addr {
	out := make([]netip.Addr, 0, len(b.Lent))
	for a, holder := range b.Lent {
		if node, claim, _ := strings.Cut(holder, "/"); node != "" && claim != "" {
			out = append(out, a)
		}
	}
	slices.SortFunc(out, netip.Addr.Compare)
	return out
}

// overlaps reports whether a prefix overlaps a pool.
func (p pools) overlaps(cidr netip.Prefix) bool {
	return slices.ContainsFunc(p.all, func(o model.AddressPool) bool {
		return slices.ContainsFunc(o.Regions, func(r model.AddressRegion) bool { return r.CIDR.Overlaps(cidr) })
	})
}

// withoutPoolCIDRs removes the podCIDRs that overlap a pool: their addresses are allocated from blocks.
func (p pools) withoutPoolCIDRs(nodes []model.Node) []model.Node {
	if len(p.all) == 0 {
		return nodes
	}
	out := make([]model.Node, 0, len(nodes))
	for _, n := range nodes {
		if slices.ContainsFunc(n.PodCIDRs, p.overlaps) {
			n.PodCIDRs = slices.DeleteFunc(slices.Clone(n.PodCIDRs), p.overlaps)
		}
		out = append(out, n)
	}
	return out
}

// claims returns all claims of a node.
func (p pools) claims(n model.Node) []claim {
	var out []claim
	for _, c := range firstPerFamily(n.PodCIDRs) {
		out = append(out, claim{n.Name, c, ofNode})
	}
	for _, s := range p.byNode[n.Name] {
		out = append(out, claim{n.Name, s.cidr, ofPool})
	}
	return out
}

func (p pools) names() []string {
	var out []string
	for _, o := range p.all {
		out = append(out, o.Name)
	}
	return out
}

// kinds returns the backends that pools use, in the order of the table.
func (p pools) kinds() []string {
	var out []string
	for _, kind := range []model.EncapsulationKind{model.EncapsulationVXLAN, model.EncapsulationIPIP} {
		if slices.ContainsFunc(p.all, func(o model.AddressPool) bool { return o.Encapsulation.Kind == kind }) {
			out = append(out, string(kind))
		}
	}
	return out
}

// cidrs returns the prefixes of the blocks.
func cidrs(spans []routedBlock) []netip.Prefix {
	var out []netip.Prefix
	for _, s := range spans {
		out = append(out, s.cidr)
	}
	return out
}

// linkLocal returns the link-local address of a MAC address (EUI-64, RFC 4291).
func linkLocal(mac state.MAC) netip.Addr {
	return netip.AddrFrom16([16]byte{
		0: 0xfe, 1: 0x80, 8: mac[0] ^ 2, 9: mac[1], 10: mac[2], 11: 0xff, 12: 0xfe, 13: mac[3], 14: mac[4], 15: mac[5],
	})
}
