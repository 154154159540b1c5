// SPDX-License-Identifier: Apache-2.0

package vm

import (
	"net/netip"
	"slices"
	"strconv"

	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/state"
)

// GuardTable begins the name of the table that stands at a guest's tap; the tap's name is the rest.
const GuardTable = "weft_guard_"

// guard lets a guest send from its own addresses only.
type guard struct{ *planner }

// atBridge has a guest speak for itself alone. It owns its wire as no container does, so what it sends is looked at
// where it comes out of the tap, before the bridge learns of it: by its hardware address and its addresses, in ARP and
// neighbor advertisements as well; not as a router, not as a DHCP server, not tagged, not to the pod's loopback
// addresses, which route_localnet would let through. Who may say everything on its wire (a network without addresses)
// has no guard.
func (p guard) atBridge(own []netip.Addr) {
	if p.TrustGuest || len(own) == 0 {
		return
	}
	t := state.Table{Family: "bridge", Name: GuardTable + p.names.tap}
	var rules []string
	t.Sets, rules = p.honest(own)
	rules = slices.Insert(rules, 0, "iifname != "+strconv.Quote(p.names.tap)+" accept")
	t.Chains = []state.Chain{
		{Name: "prerouting", Type: "filter", Hook: "prerouting", Priority: -300, Policy: "accept", Rules: texts(rules...)},
	}
	p.out.Fragment.Pod.Tables = append(p.out.Fragment.Pod.Tables, t)
}

// GuardFamily is that of the table at a macvtap, whose frames nothing else of the pod sees.
const GuardFamily = "netdev"

// atLink does the same where the guest's frames leave the pod by its link itself, a macvtap.
func (p guard) atLink(own []netip.Addr) {
	if p.TrustGuest || len(own) == 0 {
		return
	}
	t := state.Table{Family: GuardFamily, Name: GuardTable + p.names.pod}
	var rules []string
	t.Sets, rules = p.honest(own)
	t.Chains = []state.Chain{
		{
			Name: "egress", Type: "filter", Hook: "egress", Device: p.names.pod, Priority: -300, Policy: "accept",
			Rules: texts(rules...),
		},
	}
	p.out.Fragment.Pod.Tables = append(p.out.Fragment.Pod.Tables, t)
}

// honest is what a guest with addresses may say.
func (p guard) honest(own []netip.Addr) (sets []state.Set, rules []string) {
	mac := p.out.Device.MAC
	rules = []string{
		"ether saddr != " + mac + " counter drop",
		"ether type 8021q counter drop", "ether type 8021ad counter drop",
		"udp dport 68 counter drop", "udp dport 546 counter drop", // what clients of DHCP listen to
		"ether type rarp accept", // so hypervisors say where a machine is after its migration
	}
	own4, own6 := state.Set{Name: "own4", Key: "ipv4_addr"}, state.Set{Name: "own6", Key: "ipv6_addr", Interval: true}
	for _, a := range own {
		if a.Is4() {
			own4.Elements = append(own4.Elements, elements(a.String())...)
		} else {
			own6.Elements = append(own6.Elements, elements(a.String())...)
		}
	}
	if len(own4.Elements) > 0 {
		sets = append(sets, own4)
		rules = append(rules, guard4(mac)...)
	}
	if len(own6.Elements) > 0 {
		own6.Elements = append(own6.Elements, elements("fe80::/10")...)
		sets = append(sets, own6)
		rules = append(rules, p.ipv6()...)
	}
	return sets, append(rules, "counter drop")
}

// guard4 accepts what the guest may say by IPv4: before it has its address, only that it wants one.
func guard4(mac string) []string {
	return []string{
		"ip daddr 127.0.0.0/8 counter drop",
		"ip saddr @own4 accept",
		"ip saddr 0.0.0.0 udp dport 67 accept",
		"arp saddr ether != " + mac + " counter drop",
		"arp saddr ip @own4 accept",
		"arp saddr ip 0.0.0.0 accept",
	}
}

// ipv6 accepts what the guest may say by IPv6. Link-local addresses it chooses by itself, but no gateway's. 134 and
// 137 are what routers say, 136 tells whose an address is. Where a fragment or an option stands before what is said on
// the link, the type of that cannot be seen (RFC 6980, 7113).
func (p guard) ipv6() []string {
	out := []string{"icmpv6 type 134 counter drop", "icmpv6 type 137 counter drop"}
	var gateways []netip.Addr
	for _, r := range p.ways {
		if r.Gw.Is6() && r.Gw.IsLinkLocalUnicast() && !slices.Contains(gateways, r.Gw) {
			gateways = append(gateways, r.Gw)
		}
	}
	if p.nic.Binding == model.VMMasquerade {
		gateways = []netip.Addr{routerAddr()}
	}
	for _, gw := range gateways {
		out = append(out, "ip6 saddr "+gw.String()+" counter drop",
			"icmpv6 type 136 icmpv6 taddr "+gw.String()+" counter drop")
	}
	for _, next := range []string{"43", "44", "60"} { // routing, fragment, destination options
		out = append(out, "ip6 saddr fe80::/10 ip6 nexthdr "+next+" counter drop")
	}
	out = append(out, "icmpv6 type 136 icmpv6 taddr != @own6 counter drop", "ip6 saddr @own6 accept")
	// Who has no address yet asks whether it may have one of its own, and listens. With another's it would keep that from
	// being taken.
	out = append(out, "ip6 saddr :: icmpv6 type 135 icmpv6 taddr @own6 accept")
	for _, kind := range []string{"133", "131", "132", "143"} {
		out = append(out, "ip6 saddr :: icmpv6 type "+kind+" accept")
	}
	return out
}

// podAddrs are the pod's addresses that others can reach.
func (p *planner) podAddrs() []netip.Addr {
	var out []netip.Addr
	for _, a := range p.pod.Addrs {
		if ip := a.Prefix.Addr(); ip.IsGlobalUnicast() {
			out = append(out, ip)
		}
	}
	return out
}
