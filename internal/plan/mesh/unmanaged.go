// SPDX-License-Identifier: Apache-2.0

package mesh

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/weft-net/weft/internal/model"
)

// addUnmanaged adds the unmanaged addresses of nodes' pods that the configuration allows and that nothing else has. If
// two nodes publish one, the node whose pod started later has it: the other pod is gone.
func (p *pools) addUnmanaged(nodes []model.Node, cfg Config) (problems []Problem) {
	if len(cfg.Unmanaged) == 0 || !slices.ContainsFunc(nodes, func(n model.Node) bool { return len(n.Unmanaged) > 0 }) {
		return nil
	}
	taken := p.owners(nodes, cfg)
	holder := map[netip.Addr]unmanagedAddress{}
	for _, n := range nodes {
		for _, b := range n.Unmanaged {
			if !isWithin(netip.PrefixFrom(b.Addr, b.Addr.BitLen()), cfg.Unmanaged) {
				continue
			}
			if why := taken(b.Addr); why != "" {
				problems = append(problems, Problem{
					[]string{n.Name},
					fmt.Sprintf("address %s of pod %s on node %s is %s: it is not routed", b.Addr, b.Pod, n.Name, why),
					"give that pod another address",
				})
				continue
			}
			one := unmanagedAddress{n.Name, b}
			if other, is := holder[b.Addr]; is {
				var problem Problem
				one, problem = one.resolveConflict(other)
				problems = append(problems, problem)
			}
			holder[b.Addr] = one
		}
	}
	p.routeUnmanaged(nodes, holder)
	return problems
}

// routeUnmanaged adds the addresses to their nodes.
func (p *pools) routeUnmanaged(nodes []model.Node, holder map[netip.Addr]unmanagedAddress) {
	for _, n := range nodes {
		for _, b := range n.Unmanaged {
			if holder[b.Addr] == (unmanagedAddress{n.Name, b}) {
				if p.byNode == nil {
					p.byNode = map[string][]routedBlock{}
				}
				p.byNode[n.Name] = append(p.byNode[n.Name],
					routedBlock{cidr: netip.PrefixFrom(b.Addr, b.Addr.BitLen()), unmanaged: true})
			}
		}
	}
}

// unmanagedAddress is an address and the node that publishes it.
type unmanagedAddress struct {
	node string
	model.UnmanagedAddress
}

// takesPrecedence reports whether packets go to this one rather than to the other.
func (b unmanagedAddress) takesPrecedence(o unmanagedAddress) bool {
	return b.Sequence > o.Sequence || b.Sequence == o.Sequence && b.node < o.node
}

// resolveConflict returns which of two addresses is routed.
func (b unmanagedAddress) resolveConflict(o unmanagedAddress) (unmanagedAddress, Problem) {
	if o.takesPrecedence(b) {
		b, o = o, b
	}
	return b, Problem{
		[]string{b.node, o.node},
		fmt.Sprintf("address %s is that of pod %s on node %s and of pod %s on node %s: packets go to the former", b.Addr,
			b.Pod, b.node, o.Pod, o.node),
		"give one of them another address",
	}
}

// owners returns a function that describes what an address belongs to; empty if the mesh does not know it.
func (p *pools) owners(nodes []model.Node, cfg Config) func(a netip.Addr) string {
	addrs := map[netip.Addr]string{}
	for _, n := range nodes {
		for _, a := range addrsOf(n) {
			addrs[a] = n.Name
		}
	}
	return func(a netip.Addr) string {
		one := netip.PrefixFrom(a, a.BitLen())
		if node, ok := addrs[a]; ok {
			return "an address of node " + node
		}
		if why := specialPrefix(a); why != "" {
			return "in " + why
		}
		if p.overlaps(one) {
			return "in a pool"
		}
		for _, n := range nodes {
			if isWithin(one, n.PodCIDRs) {
				return "in the podCIDR of node " + n.Name
			}
		}
		if isWithin(one, cfg.Networks) || isWithin(one, cfg.Masquerade) {
			return "in the cluster's network"
		}
		return ""
	}
}

// unmanagedPrefixes returns the routed addresses that pods use outside IPAM.
func (p pools) unmanagedPrefixes() []netip.Prefix {
	var out []netip.Prefix
	for _, spans := range p.byNode {
		for _, s := range spans {
			if s.unmanaged {
				out = append(out, s.cidr)
			}
		}
	}
	return out
}
