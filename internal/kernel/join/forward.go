// SPDX-License-Identifier: Apache-2.0

package join

import (
	"context"
	"fmt"

	"github.com/weft-net/weft/internal/kernel/nft/lang"
	"github.com/weft-net/weft/internal/state"
)

// table returns the nft table of a join: a chain for each link's arriving packets.
func (w Way) table() state.Table {
	accept := func(text string, args ...any) state.NftRule {
		return state.NftRule{Text: fmt.Sprintf(text, args...) + " accept"}
	}
	j := w.Join
	send := func(index int) state.NftRule { return state.NftRule{Text: fmt.Sprintf("fwd to %d", index)} }
	var rules []state.NftRule
	for _, ip := range j.LocalAddrs {
		if ip.Is4() {
			rules = append(rules, accept("arp operation request arp daddr ip %s", ip), accept("ip daddr %s udp dport 67", ip))
		} else {
			rules = append(rules, accept("ip6 daddr %s meta l4proto ipv6-icmp", ip), accept("ip6 daddr %s udp dport 547", ip),
				accept("icmpv6 type 135 icmpv6 taddr %s", ip))
		}
	}
	if j.ProxySubnet.IsValid() {
		rules = append(rules, state.NftRule{Text: fmt.Sprintf("arp daddr ip %s fwd to %d", j.GuestAddr, w.Link.Index)},
			accept("arp operation request arp daddr ip %s", j.ProxySubnet))
	}
	if j.DHCP4 {
		rules = append(rules, accept("ip daddr 255.255.255.255 udp dport 67"))
	}
	if j.DHCP6 {
		rules = append(rules, accept("ip6 daddr ff02::/16 udp dport 547"))
	}
	if j.RS {
		rules = append(rules, accept("icmpv6 type 133"))
	}
	chain := func(name, device string, rules ...state.NftRule) state.Chain {
		return state.Chain{Name: name, Type: "filter", Hook: "ingress", Policy: "accept", Device: device, Rules: rules}
	}
	return state.Table{Family: "netdev", Name: "weft_join_" + j.Tap, Chains: []state.Chain{
		chain("arriving", j.Link, send(w.Tap.Index)), chain("guest", j.Tap, append(rules, send(w.Link.Index))...),
	}}
}

func (w Way) forwards(ctx context.Context) (bool, error) {
	n, err := w.In.Filters.Netfilter()
	if err != nil {
		return false, err
	}
	want := []state.Table{w.table()}
	have, err := n.Read(ctx, want)
	return err == nil && len(lang.Diff(want, have)) == 0, err
}

func (w Way) beginForward(ctx context.Context) error {
	n, err := w.In.Filters.Netfilter()
	if err != nil {
		return err
	}
	return n.Apply(ctx, []state.Table{w.table()})
}

func (w Way) endForward(ctx context.Context) error {
	n, err := w.In.Filters.Netfilter()
	if err != nil {
		return err
	}
	// A failing transaction makes the kernel wait for an RCU grace period, so a missing table is not deleted.
	t := w.table()
	gone := []state.Table{{Family: t.Family, Name: t.Name}} // by name: the rules' links may be gone
	if have, err := n.Read(ctx, gone); err != nil || len(have) == 0 {
		return err
	}
	return n.Remove(ctx, gone)
}
