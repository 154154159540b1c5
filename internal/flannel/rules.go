// SPDX-License-Identifier: Apache-2.0

package flannel

import (
	"fmt"
	"net/netip"

	"github.com/weft-net/weft/internal/state"
)

// The names of flannel's chains and tables.
const (
	ChainMasq    = "FLANNEL-POSTRTG"
	ChainForward = "FLANNEL-FWD"
	TableV4      = "flannel-ipv4"
	TableV6      = "flannel-ipv6"
)

// kubeProxyMark is the bit with which kube-proxy marks what it masquerades itself: 0x4000 under the mask 0x4000.
const kubeProxyMark = "0x4000/0x4000"

// Rules are the masquerade and forward rules for a node's pods.
type Rules struct {
	// Networks and Subnets are those of the families that are on, one a family each, in the same order.
	Networks, Subnets []netip.Prefix
	// Masquerade applies SNAT to packets that leave the network; Except are further destinations without SNAT.
	Masquerade bool
	Except     []netip.Prefix
	// Random chooses ports at random, so that two pods seldom conflict.
	Random bool
	// Forward accepts packets that are forwarded from and to pods, whatever the policy of the chain FORWARD.
	Forward bool
}

func multicast(p netip.Prefix) string {
	if p.Addr().Is4() {
		return "224.0.0.0/4"
	}
	return "ff00::/8"
}

// IPTables returns the rules in flannel's own chains, as iptables-save prints them.
func (r Rules) IPTables() []state.IPTables {
	var out []state.IPTables
	for i, network := range r.Networks {
		v6 := network.Addr().Is6()
		if r.Masquerade && i < len(r.Subnets) {
			out = append(out, state.IPTables{IPv6: v6, Table: "nat", Chains: []state.IPChain{
				{Name: ChainMasq, Rules: r.masqueradeRules(network, r.Subnets[i])},
				{
					Name: "POSTROUTING", Shared: true, Rules: []state.IPRule{
						{Text: `-m comment --comment "flanneld masq" -j ` + ChainMasq},
					},
				},
			}})
		}
		if r.Forward {
			const comment = ` -m comment --comment "flanneld forward" -j `
			out = append(out, state.IPTables{IPv6: v6, Table: "filter", Chains: []state.IPChain{
				{Name: ChainForward, Rules: []state.IPRule{
					{Text: "-s " + network.String() + comment + "ACCEPT"},
					{Text: "-d " + network.String() + comment + "ACCEPT"},
				}},
				{
					Name: "FORWARD", Shared: true, Rules: []state.IPRule{
						{Text: `-m comment --comment "flanneld forward" -j ` + ChainForward},
					},
				},
			}})
		}
	}
	return out
}

func (r Rules) masqueradeRules(network, subnet netip.Prefix) []state.IPRule {
	const comment = ` -m comment --comment "flanneld masq" -j `
	masquerade := comment + "MASQUERADE"
	if r.Random {
		masquerade += " --random-fully"
	}
	texts := []string{
		"-m mark --mark " + kubeProxyMark + comment + "RETURN",
		fmt.Sprintf("-s %s -d %s%sRETURN", subnet, network, comment),
		fmt.Sprintf("-s %s -d %s%sRETURN", network, subnet, comment),
		fmt.Sprintf("! -s %s -d %s%sRETURN", network, subnet, comment),
	}
	for _, p := range r.exceptions(network) {
		texts = append(texts, fmt.Sprintf("-s %s -d %s%sRETURN", network, p, comment))
	}
	texts = append(texts,
		fmt.Sprintf("-s %s ! -d %s%s", network, multicast(network), masquerade),
		fmt.Sprintf("! -s %s -d %s%s", network, network, masquerade),
	)
	var out []state.IPRule
	for _, t := range texts {
		out = append(out, state.IPRule{Text: t})
	}
	return out
}

// exceptions returns those of the network's family.
func (r Rules) exceptions(network netip.Prefix) []netip.Prefix {
	var out []netip.Prefix
	for _, p := range r.Except {
		if p.Addr().Is4() == network.Addr().Is4() {
			out = append(out, p)
		}
	}
	return out
}

// NFTables are the same rules as tables of nft, under flannel's names and without the two defects of its own:
// kube-proxy's mark is compared under its mask, and the rule about packets that come from outside to this node's pods
// is about these only, so that the node's own packets to other nodes' pods are masqueraded as with iptables.
func (r Rules) NFTables() []state.Table {
	var out []state.Table
	for i, network := range r.Networks {
		t := state.Table{Family: "ip", Name: TableV4}
		if network.Addr().Is6() {
			t = state.Table{Family: "ip6", Name: TableV6}
		}
		if r.Forward {
			t.Chains = append(t.Chains, state.Chain{
				Name: "forward", Type: "filter", Hook: "forward", Priority: 0, Policy: "accept",
				Rules: []state.NftRule{
					{Text: fmt.Sprintf("%s saddr %s accept", t.Family, network)},
					{Text: fmt.Sprintf("%s daddr %s accept", t.Family, network)},
				},
			})
		}
		if r.Masquerade && i < len(r.Subnets) {
			t.Chains = append(t.Chains, state.Chain{
				Name: "postrtg", Type: "nat", Hook: "postrouting", Priority: 100, Policy: "accept",
				Rules: r.nftMasquerade(t.Family, network, r.Subnets[i]),
			})
		}
		if len(t.Chains) > 0 {
			out = append(out, t)
		}
	}
	return out
}

func (r Rules) nftMasquerade(family string, network, subnet netip.Prefix) []state.NftRule {
	masquerade := "masquerade"
	if r.Random {
		masquerade += " fully-random"
	}
	texts := []string{
		"meta mark & 0x00004000 == 0x00004000 return",
		fmt.Sprintf("%s saddr %s %s daddr %s return", family, subnet, family, network),
		fmt.Sprintf("%s saddr %s %s daddr %s return", family, network, family, subnet),
		fmt.Sprintf("%s saddr != %s %s daddr %s return", family, network, family, subnet),
	}
	for _, p := range r.exceptions(network) {
		texts = append(texts, fmt.Sprintf("%s saddr %s %s daddr %s return", family, network, family, p))
	}
	texts = append(texts,
		fmt.Sprintf("%s saddr %s %s daddr != %s %s", family, network, family, multicast(network), masquerade),
		fmt.Sprintf("%s saddr != %s %s daddr %s %s", family, network, family, network, masquerade),
	)
	var out []state.NftRule
	for _, t := range texts {
		out = append(out, state.NftRule{Text: t})
	}
	return out
}
