// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"net/netip"

	"github.com/weft-net/weft/internal/state"
)

// tables are weft's own tables with the container's elements. The chains and sets are shared by all.
func (p protection) tables() []state.Table {
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
	if p.alone {
		comment = p.mark
	}
	add("bridges", comment, !p.alone, quoted(p.bridge))
	if p.conf.IngressPolicy == policySameBridge {
		add("pairs", comment, !p.alone, quoted(p.bridge), quoted(p.bridge))
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

// firewallTable is what is forwarded by IP. A bridge with a policy does not send to a container with a policy on
// another one, and with "isolated" not to one of its own: as with the reference plugin, what comes from elsewhere is
// let in. Answers always pass.
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

// portsTable is what a bridge passes from port to port, which no chain of IP sees: isolated containers get nothing from
// others of their bridge. A port that is no container's, an uplink, is left alone.
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
