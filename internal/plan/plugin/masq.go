// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/state"
)

const maxComment = 128 // NFTNL_UDATA_COMMENT_MAXLEN

// Masquerade returns weft's nft table with an attachment's elements: packets from its addresses to destinations outside
// the address's subnet are masqueraded (SNAT to the node's address). All attachments share the chains and sets; an
// attachment adds elements only, so its cost does not grow with their number.
func Masquerade(k model.AttachmentKey, ips []model.IP) state.Table {
	mark := elementMark(k)
	sets := []state.Set{
		{Name: "masq4", Key: "ipv4_addr"},
		{Name: "masq6", Key: "ipv6_addr"},
		{Name: "nomasq4", Key: "ipv4_addr . ipv4_addr", Interval: true},
		{Name: "nomasq6", Key: "ipv6_addr . ipv6_addr", Interval: true},
	}
	for _, ip := range ips {
		yes, no := &sets[0], &sets[2]
		if ip.Address.Addr().Is6() {
			yes, no = &sets[1], &sets[3]
		}
		addr, net := ip.Address.Addr().String(), ip.Address.Masked().String()
		yes.Elements = append(yes.Elements, state.Element{Key: []string{addr}, Comment: mark})
		if !ip.Address.IsSingleIP() {
			no.Elements = append(no.Elements, state.Element{Key: []string{addr, net}, Comment: mark})
		}
	}
	return state.Table{Family: "inet", Name: "weft", Shared: true, Sets: sets, Chains: []state.Chain{{
		Name: "postrouting", Type: "nat", Hook: "postrouting", Priority: 100, Policy: "accept",
		Rules: []state.NftRule{
			{Text: "ip daddr 224.0.0.0/4 return"},
			{Text: "ip6 daddr ff00::/8 return"},
			{Text: "ip saddr . ip daddr @nomasq4 return"},
			{Text: "ip saddr @masq4 masquerade"},
			{Text: "ip6 saddr . ip6 daddr @nomasq6 return"},
			{Text: "ip6 saddr @masq6 masquerade"},
		},
	}}}
}
