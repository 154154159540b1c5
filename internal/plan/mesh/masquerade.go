// SPDX-License-Identifier: Apache-2.0

package mesh

import (
	"net/netip"

	"github.com/weft-net/weft/internal/state"
)

// MasqueradeTable is the name of the table that hides pods from what is outside of the cluster.
const MasqueradeTable = "weft-cluster"

// masquerade gives packets of the cluster's pods the node's address when they leave for anywhere else. Pods see each
// other's own addresses, on whatever node.
func masquerade(cluster []netip.Prefix) state.Table {
	sets := []state.Set{
		{Name: "cluster4", Key: "ipv4_addr", Interval: true},
		{Name: "cluster6", Key: "ipv6_addr", Interval: true},
	}
	for _, p := range cluster {
		s := &sets[0]
		if p.Addr().Is6() {
			s = &sets[1]
		}
		s.Elements = append(s.Elements, state.Element{Key: []string{p.String()}})
	}
	return state.Table{Family: "inet", Name: MasqueradeTable, Sets: sets, Chains: []state.Chain{{
		Name: "postrouting", Type: "nat", Hook: "postrouting", Priority: 100, Policy: "accept",
		Rules: []state.NftRule{
			{Text: "ip daddr 224.0.0.0/4 return"},
			{Text: "ip daddr @cluster4 return"},
			{Text: "ip saddr @cluster4 masquerade"},
			{Text: "ip6 daddr ff00::/8 return"},
			{Text: "ip6 daddr @cluster6 return"},
			{Text: "ip6 saddr @cluster6 masquerade"},
		},
	}}}
}
