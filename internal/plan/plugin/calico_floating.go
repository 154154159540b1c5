// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"net/netip"

	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/state"
)

// FloatingTable names the table that translates floating IPs to pods.
const FloatingTable = "weft_floating"

// floating adds the one-to-one NAT of floating IPs to the pod's address of the same family. Any host that sends to a
// floating IP reaches the pod; for a connection of the pod to its own floating IP, the source is translated as well.
// Routing packets for the address to this node is up to the network. A floating IP has one pod.
func floating(f *state.Fragment, in Input, a addressed, addrs []netip.Addr) error {
	if len(addrs) == 0 || a.late && !a.known() {
		return nil
	}
	mark := elementMark(in.Request.Key())
	t := floatingTable()
	// Tracked connections keep their translation, so their entries must be flushed.
	made := state.Effect{Kind: state.FlushConntrack, Space: state.Host}
	gone := state.Effect{Kind: state.FlushConntrack, Space: state.Host, When: state.OnRemove}
	hairpin := map[netip.Addr]bool{} // addresses whose hairpin source is set
	for _, ext := range addrs {
		own, ok := a.first(ext.Is4())
		if !ok {
			return model.Errorf(model.CodeInvalidConf, "give the pod an address of that family, or leave it out",
				"annotation %sfloatingIPs: %s: the pod has no address of its family", calicoCNI, ext)
		}
		made.Flows = append(made.Flows, state.Flow{IPv6: ext.Is6(), Dst: ext})
		to, back := 0, 1
		if own.Is6() {
			to, back = 2, 3
		}
		t.Sets[to].Elements = append(t.Sets[to].Elements, state.Element{
			Key: []string{ext.String()}, Val: []string{own.String()}, Comment: mark,
		})
		if !hairpin[own] {
			hairpin[own] = true
			t.Sets[back].Elements = append(t.Sets[back].Elements, state.Element{
				Key: []string{own.String(), own.String()}, Val: []string{ext.String()}, Comment: mark,
			})
			gone.Flows = append(gone.Flows, state.Flow{IPv6: own.Is6(), ReplySrc: own})
		}
	}
	f.Host.Tables = append(f.Host.Tables, t)
	f.Effects = append(f.Effects, made, gone)
	return nil
}

// first returns the first address of a family.
func (a *addressed) first(v4 bool) (netip.Addr, bool) {
	for _, ip := range a.ips {
		if ip.Address.Addr().Is4() == v4 {
			return ip.Address.Addr(), true
		}
	}
	return netip.Addr{}, false
}

func floatingTable() state.Table {
	lead := texts("dnat ip to ip daddr map @to4", "dnat ip6 to ip6 daddr map @to6")
	return ownedByLast([]state.Table{{Family: "inet", Name: FloatingTable, Shared: true, Sets: []state.Set{
		{Name: "to4", Key: "ipv4_addr", Data: "ipv4_addr", Exclusive: "to4"},
		{Name: "back4", Key: "ipv4_addr . ipv4_addr", Data: "ipv4_addr"},
		{Name: "to6", Key: "ipv6_addr", Data: "ipv6_addr", Exclusive: "to6"},
		{Name: "back6", Key: "ipv6_addr . ipv6_addr", Data: "ipv6_addr"},
	}, Chains: []state.Chain{
		{Name: "prerouting", Type: "nat", Hook: "prerouting", Priority: -110, Policy: "accept", Rules: lead},
		{Name: "output", Type: "nat", Hook: "output", Priority: -110, Policy: "accept", Rules: lead},
		{Name: "postrouting", Type: "nat", Hook: "postrouting", Priority: 90, Policy: "accept", Rules: texts(
			"snat ip to ip saddr . ip daddr map @back4", "snat ip6 to ip6 saddr . ip6 daddr map @back6")},
	}}})[0]
}

// TakenFloating returns the floating IP that an element of the table translates; false for other tables.
func TakenFloating(table string, key []string) (addr string, ok bool) {
	if table != FloatingTable || len(key) != 1 {
		return "", false
	}
	return key[0], true
}
