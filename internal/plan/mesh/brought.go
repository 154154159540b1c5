// SPDX-License-Identifier: Apache-2.0

package mesh

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/weft-net/weft/internal/model"
)

// bring adds the single addresses that nodes' pods have brought along, as far as the configuration permits it and
// nobody else has them. Of two nodes that say they have one, the one whose pod came later does: it came when the
// other's had gone.
func (p *pools) bring(nodes []model.Node, cfg Config) (problems []Problem) {
	if len(cfg.Brought) == 0 || !slices.ContainsFunc(nodes, func(n model.Node) bool { return len(n.Brought) > 0 }) {
		return nil
	}
	taken := p.owners(nodes, cfg)
	holder := map[netip.Addr]bringing{}
	for _, n := range nodes {
		for _, b := range n.Brought {
			if !inside(netip.PrefixFrom(b.Addr, b.Addr.BitLen()), cfg.Brought) {
				continue
			}
			if why := taken(b.Addr); why != "" {
				problems = append(problems, Problem{
					[]string{n.Name},
					fmt.Sprintf("address %s of pod %s on node %s is %s: no other node leads there", b.Addr, b.Pod, n.Name, why),
					"give that pod another address",
				})
				continue
			}
			one := bringing{n.Name, b}
			if other, is := holder[b.Addr]; is {
				var problem Problem
				one, problem = one.against(other)
				problems = append(problems, problem)
			}
			holder[b.Addr] = one
		}
	}
	p.lead(nodes, holder)
	return problems
}

// lead has packets for addresses go to those who have them.
func (p *pools) lead(nodes []model.Node, holder map[netip.Addr]bringing) {
	for _, n := range nodes {
		for _, b := range n.Brought {
			if holder[b.Addr] == (bringing{n.Name, b}) {
				if p.of == nil {
					p.of = map[string][]span{}
				}
				p.of[n.Name] = append(p.of[n.Name], span{cidr: netip.PrefixFrom(b.Addr, b.Addr.BitLen()), brought: true})
			}
		}
	}
}

// bringing is an address and the node that says that a pod of its has it.
type bringing struct {
	node string
	model.Brought
}

// before tells whether packets go to this one rather than to the other.
func (b bringing) before(o bringing) bool {
	return b.Turn > o.Turn || b.Turn == o.Turn && b.node < o.node
}

// against is who of two has an address.
func (b bringing) against(o bringing) (bringing, Problem) {
	if o.before(b) {
		b, o = o, b
	}
	return b, Problem{
		[]string{b.node, o.node},
		fmt.Sprintf("address %s is that of pod %s on node %s and of pod %s on node %s: packets go to the former", b.Addr,
			b.Pod, b.node, o.Pod, o.node),
		"give one of them another address",
	}
}

// owners says whose an address is, empty where it is nobody's that the mesh knows.
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
		if why := odd(a); why != "" {
			return "in " + why
		}
		if p.in(one) {
			return "in a pool"
		}
		for _, n := range nodes {
			if inside(one, n.PodCIDRs) {
				return "in the podCIDR of node " + n.Name
			}
		}
		if inside(one, cfg.Networks) || inside(one, cfg.Masquerade) {
			return "in the cluster's network"
		}
		return ""
	}
}

// brought are the addresses that pods have brought along and that packets find.
func (p pools) brought() []netip.Prefix {
	var out []netip.Prefix
	for _, spans := range p.of {
		for _, s := range spans {
			if s.brought {
				out = append(out, s.cidr)
			}
		}
	}
	return out
}
