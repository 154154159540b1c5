// SPDX-License-Identifier: Apache-2.0

package state

import (
	"fmt"
	"net/netip"
	"strings"
)

// Join connects a tap and another link of the same space: frames that the guest sends through the tap leave over the
// link, and frames that arrive on the link go to the guest. The namespace's own IP stack receives only what the fields
// below keep on the tap's side.
type Join struct {
	Tap  string `json:"tap"`
	Link string `json:"link"`
	// Method is the data path; unset, the best one that the kernel supports.
	Method JoinMethod `json:"how,omitempty"`
	// LocalAddrs are addresses that the tap's side answers for: ARP and neighbor solicitations for them are kept, and
	// of the packets to them DHCP, ICMPv6 and DHCPv6.
	LocalAddrs []netip.Addr `json:"own,omitempty"`
	// ProxySubnet is a subnet for all of whose addresses the tap's side answers the guest's ARP and neighbor
	// solicitations.
	ProxySubnet netip.Prefix `json:"near,omitzero"`
	// GuestAddr is the guest's own address in ProxySubnet, which is never answered for.
	GuestAddr netip.Addr `json:"guest,omitzero"`
	// These keep the guest's requests to servers on the tap's side: DHCP broadcasts, DHCPv6 multicasts, router
	// solicitations.
	DHCP4 bool `json:"dhcp4,omitempty"`
	DHCP6 bool `json:"dhcp6,omitempty"`
	RS    bool `json:"rs,omitempty"`
}

// JoinMethod is a data path between joined links.
type JoinMethod string

// The methods.
const (
	// JoinPeer: eBPF redirects the guest's frames to the link's other end, which must be a veth's end in another
	// namespace. A frame costs two thirds of what it costs with the other methods, which are nearly alike.
	JoinPeer JoinMethod = "redirect-peer"
	// JoinRedirect: eBPF sends frames over the link, which may have no such end, or a queue that must not be bypassed.
	JoinRedirect JoinMethod = "redirect"
	// JoinForward: nft's netdev family, for kernels and users that cannot load eBPF.
	JoinForward JoinMethod = "nft-fwd"
	// JoinMirred: filters of traffic control (tc) with the action mirred.
	JoinMirred JoinMethod = "mirred"
)

// JoinMethods returns all methods, in the order in which they are tried.
func JoinMethods() []JoinMethod { return []JoinMethod{JoinPeer, JoinRedirect, JoinForward, JoinMirred} }

// String prints the links that are joined, and what is kept.
func (j Join) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "join %s %s", j.Tap, j.Link)
	word(&b, "how", string(j.Method))
	for _, ip := range j.LocalAddrs {
		word(&b, "own", ip.String())
	}
	if j.ProxySubnet.IsValid() {
		word(&b, "near", j.ProxySubnet.String())
	}
	for _, k := range []struct {
		on   bool
		name string
	}{{j.DHCP4, "dhcp"}, {j.DHCP6, "dhcpv6"}, {j.RS, "rs"}} {
		if k.on {
			b.WriteString(" keeps " + k.name)
		}
	}
	return b.String()
}
