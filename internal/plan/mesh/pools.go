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

// pools is what the cluster's pools and blocks say, made ready for one plan. Its zero value is a cluster without any.
type pools struct {
	all []model.AddressPool // those of the cluster's network
	// of is what each node's pods are numbered from: its blocks, and behind them the single addresses that it holds of
	// other nodes' blocks. Last are addresses that its pods have brought along.
	of map[string][]span
}

// span is a block, a single address of another node's block, or one that a pod has brought along.
type span struct {
	cidr    netip.Prefix
	how     model.Encapsulation
	brought bool
}

// gather takes together what is of the cluster's network, and what pods have brought to it.
func gather(c *model.Cluster, cfg Config) (pools, []Problem) {
	out, problems := gatherPools(c, cfg)
	return out, append(problems, out.bring(c.Nodes, cfg)...)
}

// gatherPools takes together what is of the cluster's pools.
func gatherPools(c *model.Cluster, cfg Config) (out pools, problems []Problem) {
	if !cfg.Pools {
		return pools{}, nil
	}
	named := map[string]model.AddressPool{}
	for _, p := range c.Pools {
		if p.OfCluster() {
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
	out.of = make(map[string][]span, len(nodes))
	singles := map[string][]span{}
	for _, b := range c.Blocks {
		pool, ok := named[b.Pool]
		if !ok {
			continue // of another network, or of a pool that this node has not heard of yet
		}
		if pool = out.now(pool, b.CIDR); !has(pool, b.CIDR) {
			problems = append(problems, Problem{
				[]string{b.Node},
				fmt.Sprintf("block %s of node %s is outside of its pool %s", b.CIDR, b.Node, b.Pool),
				"give the pool back the region that the block is of; until then its pods are not reached",
			})
			continue
		}
		how := pool.Encapsulation
		if nodes[b.Node] {
			out.of[b.Node] = append(out.of[b.Node], span{cidr: b.CIDR.Masked(), how: how})
		} else {
			problems = append(problems, Problem{
				[]string{b.Node},
				fmt.Sprintf("node %s has blocks and is not in the cluster", b.Node),
				"its blocks are taken over after a while; `weft ipam check` shows them",
			})
		}
		for _, a := range ceded(b) {
			if holder, _, _ := strings.Cut(b.Ceded[a], "/"); holder != b.Node && nodes[holder] {
				singles[holder] = append(singles[holder], span{cidr: netip.PrefixFrom(a, a.BitLen()), how: how})
			}
		}
	}
	for node, more := range singles {
		out.of[node] = append(out.of[node], more...)
	}
	return out, problems
}

// now is the pool that has a block's addresses: its own, or the one that people have moved the region to.
func (p pools) now(own model.AddressPool, cidr netip.Prefix) model.AddressPool {
	if has(own, cidr) {
		return own
	}
	if i := slices.IndexFunc(p.all, func(o model.AddressPool) bool { return has(o, cidr) }); i >= 0 {
		return p.all[i]
	}
	return own
}

// has tells whether a pool has a prefix.
func has(p model.AddressPool, cidr netip.Prefix) bool {
	return slices.ContainsFunc(p.Regions, func(r model.AddressRegion) bool { return inside(cidr, []netip.Prefix{r.CIDR}) })
}

// ceded are the addresses of a block that others hold, sorted.
func ceded(b model.AddressBlock) []netip.Addr {
	out := make([]netip.Addr, 0, len(b.Ceded))
	for a, holder := range b.Ceded {
		if node, claim, _ := strings.Cut(holder, "/"); node != "" && claim != "" {
			out = append(out, a)
		}
	}
	slices.SortFunc(out, netip.Addr.Compare)
	return out
}

// in tells whether a prefix has addresses of a pool.
func (p pools) in(cidr netip.Prefix) bool {
	return slices.ContainsFunc(p.all, func(o model.AddressPool) bool {
		return slices.ContainsFunc(o.Regions, func(r model.AddressRegion) bool { return r.CIDR.Overlaps(cidr) })
	})
}

// without takes the podCIDRs away that lie in a pool: there pods are numbered from blocks.
func (p pools) without(nodes []model.Node) []model.Node {
	if len(p.all) == 0 {
		return nodes
	}
	out := make([]model.Node, 0, len(nodes))
	for _, n := range nodes {
		if slices.ContainsFunc(n.PodCIDRs, p.in) {
			n.PodCIDRs = slices.DeleteFunc(slices.Clone(n.PodCIDRs), p.in)
		}
		out = append(out, n)
	}
	return out
}

// claims are all that a node claims.
func (p pools) claims(n model.Node) []claim {
	var out []claim
	for _, c := range first(n.PodCIDRs) {
		out = append(out, claim{n.Name, c, ofNode})
	}
	for _, s := range p.of[n.Name] {
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

// kinds are the back ends that pools name, in the order of the table.
func (p pools) kinds() []string {
	var out []string
	for _, kind := range []model.EncapsulationKind{model.EncapsulationVXLAN, model.EncapsulationIPIP} {
		if slices.ContainsFunc(p.all, func(o model.AddressPool) bool { return o.Encapsulation.Kind == kind }) {
			out = append(out, string(kind))
		}
	}
	return out
}

// cidrs are those of the nodes' spans.
func cidrs(spans []span) []netip.Prefix {
	var out []netip.Prefix
	for _, s := range spans {
		out = append(out, s.cidr)
	}
	return out
}

// linkLocal is the link-local address that belongs to a hardware address (RFC 4291).
func linkLocal(mac state.MAC) netip.Addr {
	return netip.AddrFrom16([16]byte{
		0: 0xfe, 1: 0x80, 8: mac[0] ^ 2, 9: mac[1], 10: mac[2], 11: 0xff, 12: 0xfe, 13: mac[3], 14: mac[4], 15: mac[5],
	})
}
