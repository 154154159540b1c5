// SPDX-License-Identifier: Apache-2.0

package vm

import (
	"net/netip"
	"slices"
	"strconv"

	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/state"
)

// GuardTable is the prefix of the name of the table at a guest's tap; the tap's name is the rest.
const GuardTable = "weft_guard_"

// guard plans the source guard: a guest can send from its own addresses only.
type guard struct{ *planner }

// atBridge plans the guard at a bridge. A guest can send any frame, so frames are filtered where they leave the tap,
// before the bridge learns from them: by MAC and IP address, also in ARP and neighbor advertisements; no router
// advertisements, no DHCP server, no VLAN tags, nothing to the pod's loopback addresses, which route_localnet would
// accept. A guest without addresses has no guard.
func (p guard) atBridge(own []netip.Addr) {
	if p.TrustGuest || len(own) == 0 {
		return
	}
	t := state.Table{Family: "bridge", Name: GuardTable + p.names.tap}
	var rules []string
	t.Sets, rules = p.allowedSources(own)
	rules = slices.Insert(rules, 0, "iifname != "+strconv.Quote(p.names.tap)+" accept")
	t.Chains = []state.Chain{
		{Name: "prerouting", Type: "filter", Hook: "prerouting", Priority: -300, Policy: "accept", Rules: texts(rules...)},
	}
	p.out.Fragment.Pod.Tables = append(p.out.Fragment.Pod.Tables, t)
}

// GuardFamily is the family of the table at a macvtap, whose frames pass no other hook in the pod.
const GuardFamily = "netdev"

// atLink plans the guard at a macvtap, where the guest's frames leave the pod.
func (p guard) atLink(own []netip.Addr) {
	if p.TrustGuest || len(own) == 0 {
		return
	}
	t := state.Table{Family: GuardFamily, Name: GuardTable + p.names.pod}
	var rules []string
	t.Sets, rules = p.allowedSources(own)
	t.Chains = []state.Chain{
		{
			Name: "egress", Type: "filter", Hook: "egress", Device: p.names.pod, Priority: -300, Policy: "accept",
			Rules: texts(rules...),
		},
	}
	p.out.Fragment.Pod.Tables = append(p.out.Fragment.Pod.Tables, t)
}

// allowedSources returns the sets and rules for a guest with addresses.
func (p guard) allowedSources(own []netip.Addr) (sets []state.Set, rules []string) {
	mac := p.out.Device.MAC
	rules = []string{
		"ether saddr != " + mac + " counter drop",
		"ether type 8021q counter drop", "ether type 8021ad counter drop",
		"udp dport 68 counter drop", "udp dport 546 counter drop", // the ports of DHCP clients
		"ether type rarp accept", // hypervisors announce a VM by RARP after its migration
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

// guard4 returns the IPv4 rules: without an address a guest can only use DHCP.
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

// ipv6 returns the IPv6 rules. The guest chooses its link-local addresses, but not a gateway's. 134 and 137 are router
// advertisements and redirects, 136 neighbor advertisements. Behind a fragment header or an option the ICMPv6 type
// cannot be matched (RFC 6980, 7113).
func (p guard) ipv6() []string {
	out := []string{"icmpv6 type 134 counter drop", "icmpv6 type 137 counter drop"}
	var gateways []netip.Addr
	for _, r := range p.routes {
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
	// Duplicate address detection for the guest's own addresses. For another's address it would prevent its use.
	out = append(out, "ip6 saddr :: icmpv6 type 135 icmpv6 taddr @own6 accept")
	for _, kind := range []string{"133", "131", "132", "143"} {
		out = append(out, "ip6 saddr :: icmpv6 type "+kind+" accept")
	}
	return out
}

// podAddrs returns the pod's global unicast addresses.
func (p *planner) podAddrs() []netip.Addr {
	var out []netip.Addr
	for _, a := range p.pod.Addrs {
		if ip := a.Prefix.Addr(); ip.IsGlobalUnicast() {
			out = append(out, ip)
		}
	}
	return out
}
