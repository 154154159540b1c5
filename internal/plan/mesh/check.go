// SPDX-License-Identifier: Apache-2.0

package mesh

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/weft-net/weft/internal/model"
)

// claim is a node's claim to a prefix.
type claim struct {
	node string
	cidr netip.Prefix
	noun string
}

// The nouns of claims.
const (
	ofNode = "podCIDR"
	ofPool = "block"
)

func (c claim) String() string { return fmt.Sprintf("%s of node %s", c.cidr, c.node) }

// check finds claims that conflict with another node. Nodes are sorted by name; the one named needs must have a podCIDR or
// a block.
func check(
	nodes []model.Node, needs string, networks []netip.Prefix, held pools,
) (unusable map[claim]bool, problems []Problem) {
	unusable = map[claim]bool{}
	claims := make([]claim, 0, len(nodes))
	for _, n := range nodes {
		used := firstPerFamily(n.PodCIDRs)
		if len(used) < len(n.PodCIDRs) {
			problems = append(problems, Problem{
				[]string{n.Name},
				fmt.Sprintf("node %s has several podCIDRs of one family, %v", n.Name, n.PodCIDRs),
				fmt.Sprintf("keep one of each family; used are %v", used),
			})
		}
		for _, c := range used {
			if why := specialPrefix(c.Addr()); why != "" {
				unusable[claim{n.Name, c, ofNode}] = true
				problems = append(problems, Problem{
					[]string{n.Name}, fmt.Sprintf("node %s: podCIDR %s is %s", n.Name, c, why), "choose a unicast prefix",
				})
				continue
			}
			if len(networks) > 0 && !isWithin(c, networks) {
				unusable[claim{n.Name, c, ofNode}] = true
				problems = append(problems, Problem{
					[]string{n.Name},
					fmt.Sprintf("node %s: podCIDR %s is outside of the network %s", n.Name, c, joinPrefixes(networks)),
					"give the node a podCIDR of the network, or correct the network in the configuration",
				})
				continue
			}
			claims = append(claims, claim{n.Name, c, ofNode})
		}
		for _, s := range held.byNode[n.Name] {
			if !s.cidr.IsSingleIP() {
				claims = append(claims, claim{n.Name, s.cidr, ofPool})
			}
		}
		if n.Name == needs && len(used) == 0 && len(held.all) == 0 {
			problems = append(problems, Problem{
				[]string{n.Name}, fmt.Sprintf("node %s has no podCIDR of its own", n.Name), "set spec.podCIDRs of the Node",
			})
		}
	}
	problems = append(problems, sharedAddrs(nodes, unusable, held)...)
	problems = append(problems, overlaps(claims, unusable)...)
	problems = append(problems, containsNodeAddr(nodes, claims, unusable)...)
	return unusable, problems
}

func isWithin(p netip.Prefix, networks []netip.Prefix) bool {
	return slices.ContainsFunc(networks, func(n netip.Prefix) bool { return n.Bits() <= p.Bits() && n.Contains(p.Addr()) })
}

func joinPrefixes(networks []netip.Prefix) string {
	var out []string
	for _, n := range networks {
		out = append(out, n.String())
	}
	return strings.Join(out, " and ")
}

func specialPrefix(a netip.Addr) string {
	switch {
	case a.IsLoopback():
		return "a loopback prefix"
	case a.IsMulticast():
		return "a multicast prefix"
	case a.IsLinkLocalUnicast():
		return "a link-local prefix"
	}
	return ""
}

// sharedAddrs finds nodes with the same address.
func sharedAddrs(nodes []model.Node, unusable map[claim]bool, held pools) []Problem {
	var problems []Problem
	holder := make(map[netip.Addr]int, len(nodes))
	for i, n := range nodes {
		for _, family := range families() {
			a, ok := addrOf(n, family)
			if !ok {
				continue
			}
			at, taken := holder[a]
			if !taken {
				holder[a] = i
				continue
			}
			other := nodes[at]
			problems = append(problems, Problem{
				[]string{other.Name, n.Name},
				fmt.Sprintf("nodes %s and %s both have the address %s", other.Name, n.Name, a),
				"correct status.addresses of one of the Nodes; until then the pods of neither are reached",
			})
			for _, who := range []model.Node{other, n} {
				for _, c := range held.claims(who) {
					if familyOf(c.cidr.Addr()) == family {
						unusable[c] = true
					}
				}
			}
		}
	}
	return problems
}

// overlaps finds claims to the same addresses. Prefixes overlap only if one contains the other, and then it comes first
// in sorted order.
func overlaps(claims []claim, unusable map[claim]bool) []Problem {
	sorted := slices.Clone(claims)
	slices.SortStableFunc(sorted, func(a, b claim) int { return comparePrefix(a.cidr, b.cidr) })
	var problems []Problem
	var open []claim // each contains the next
	for _, c := range sorted {
		for len(open) > 0 && !open[len(open)-1].cidr.Overlaps(c.cidr) {
			open = open[:len(open)-1]
		}
		if len(open) > 0 && open[len(open)-1].node != c.node {
			o := open[len(open)-1]
			unusable[o], unusable[c] = true, true
			problems = append(problems, Problem{
				[]string{o.node, c.node},
				fmt.Sprintf("%s %s overlaps %s %s", o.noun, o, c.noun, c),
				overlapHint(o, c),
			})
		}
		open = append(open, c)
	}
	return problems
}

// overlapHint returns how to fix two overlapping claims.
func overlapHint(a, b claim) string {
	if a.noun == ofPool || b.noun == ofPool {
		return "two pools have these addresses: delete one of them; until then the pods of neither are reached"
	}
	return "give each Node a prefix of its own; until then the pods of neither are reached"
}

// containsNodeAddr finds claims that contain a node's own address: a route for them would disconnect the node.
func containsNodeAddr(nodes []model.Node, claims []claim, unusable map[claim]bool) []Problem {
	type held struct {
		addr netip.Addr
		node string
	}
	addrs := make([]held, 0, len(nodes))
	for _, n := range nodes {
		for _, a := range addrsOf(n) {
			addrs = append(addrs, held{a, n.Name})
		}
	}
	slices.SortStableFunc(addrs, func(a, b held) int { return a.addr.Compare(b.addr) })
	var problems []Problem
	for _, c := range claims {
		i, _ := slices.BinarySearchFunc(addrs, c.cidr.Addr(), func(h held, a netip.Addr) int { return h.addr.Compare(a) })
		if i == len(addrs) || !c.cidr.Contains(addrs[i].addr) {
			continue
		}
		unusable[c] = true
		problems = append(problems, Problem{
			[]string{c.node, addrs[i].node},
			fmt.Sprintf("%s %s contains the address %s of node %s", c.noun, c, addrs[i].addr, addrs[i].node),
			"choose a " + c.noun + " outside the nodes' network",
		})
	}
	return problems
}
