// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"net/netip"

	"github.com/weft-net/weft/internal/state"
)

// tables returns weft's own tables with the container's elements. All containers share the chains and sets.
func (p firewallPlan) tables() []state.Table {
	t := firewallTable()
	add := func(set string, comment string, shared bool, key ...string) {
		for i := range t.Sets {
			if t.Sets[i].Name == set {
				t.Sets[i].Elements = append(t.Sets[i].Elements, state.Element{Key: key, Comment: comment, Shared: shared})
			}
		}
	}
	for _, a := range p.addrs {
		family := familyOf(a)
		add("pods"+family, p.mark, false, a.String())
		switch p.conf.IngressPolicy {
		case policySameBridge:
			add("same"+family, p.mark, false, quoted(p.bridge), a.String())
		case policyIsolated:
			add("isolated"+family, p.mark, false, quoted(p.bridge), a.String())
		}
	}
	if p.bridge == "" {
		return []state.Table{t}
	}
	comment := state.SharedComment
	if p.ownLink {
		comment = p.mark
	}
	add("bridges", comment, !p.ownLink, quoted(p.bridge))
	if p.conf.IngressPolicy == policySameBridge {
		add("pairs", comment, !p.ownLink, quoted(p.bridge), quoted(p.bridge))
	}
	if p.port == "" {
		return []state.Table{t}
	}
	ports := portsTable()
	ports.Sets[0].Elements = []state.Element{{Key: []string{quoted(p.port)}, Comment: p.mark}}
	return []state.Table{t, ports}
}

func quoted(link string) string { return `"` + link + `"` }

func familyOf(a netip.Addr) string {
	if a.Is4() {
		return "4"
	}
	return "6"
}

// firewallTable returns the table for forwarded IP packets. Packets between bridges with a policy are dropped and, with
// "isolated", packets between containers of one bridge. As with the reference plugin, packets from other interfaces are
// accepted. Replies are always accepted.
func firewallTable() state.Table {
	return state.Table{
		Family: "inet", Name: "weft_firewall", Shared: true,
		Sets: []state.Set{
			{Name: "pods4", Key: "ipv4_addr"},
			{Name: "pods6", Key: "ipv6_addr"},
			{Name: "bridges", Key: "ifname"},
			{Name: "pairs", Key: "ifname . ifname"},
			{Name: "same4", Key: "ifname . ipv4_addr"},
			{Name: "same6", Key: "ifname . ipv6_addr"},
			{Name: "isolated4", Key: "ifname . ipv4_addr"},
			{Name: "isolated6", Key: "ifname . ipv6_addr"},
		},
		Chains: []state.Chain{{
			Name: "forward", Type: "filter", Hook: "forward", Policy: "accept",
			Rules: []state.NftRule{
				{Text: "ct state established,related accept"},
				{Text: "iifname @bridges oifname . ip daddr @isolated4 drop"},
				{Text: "iifname @bridges oifname . ip6 daddr @isolated6 drop"},
				{Text: "iifname . oifname @pairs accept"},
				{Text: "iifname @bridges oifname . ip daddr @same4 drop"},
				{Text: "iifname @bridges oifname . ip6 daddr @same6 drop"},
				{Text: "ip daddr @pods4 accept"},
				{Text: "ip saddr @pods4 accept"},
				{Text: "ip6 daddr @pods6 accept"},
				{Text: "ip6 saddr @pods6 accept"},
			},
		}},
	}
}

// portsTable returns the table for packets between ports of a bridge, which IP chains do not see: isolated containers
// receive nothing from other ports with containers. A port without a container, such as an uplink, is not restricted.
func portsTable() state.Table {
	return state.Table{
		Family: "bridge", Name: "weft_firewall", Shared: true,
		Sets: []state.Set{{Name: "isolated", Key: "ifname"}},
		Chains: []state.Chain{{
			Name: "forward", Type: "filter", Hook: "forward", Priority: -200, Policy: "accept",
			Rules: []state.NftRule{
				{Text: `iifname "veth*" oifname @isolated drop`},
				{Text: `iifname @isolated oifname "veth*" drop`},
			},
		}},
	}
}
