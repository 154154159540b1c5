// SPDX-License-Identifier: Apache-2.0

package state

import (
	"fmt"
	"net/netip"
	"strings"
)

// Join makes one wire of a tap and another link of the same space: what a guest sends through the tap leaves over the
// link, and what arrives there is the guest's. Neither end hears of it, but for what the tap's side keeps.
type Join struct {
	Tap  string `json:"tap"`
	Link string `json:"link"`
	// How is the way in which it is done; unset, the best one that the kernel can.
	How JoinHow `json:"how,omitempty"`
	// Own are addresses that the tap's side answers for: who asks for them is kept, and of what is sent to them DHCP,
	// ICMPv6 and DHCPv6.
	Own []netip.Addr `json:"own,omitempty"`
	// Near is a subnet all of which the tap's side answers for when the guest asks who has an address of it.
	Near netip.Prefix `json:"near,omitzero"`
	// Guest is the guest's own address in that subnet, for which nobody answers.
	Guest netip.Addr `json:"guest,omitzero"`
	// These keep what guests ask of servers: by broadcast of DHCP, by multicast of DHCPv6, of routers.
	DHCP4 bool `json:"dhcp4,omitempty"`
	DHCP6 bool `json:"dhcp6,omitempty"`
	RS    bool `json:"rs,omitempty"`
}

// JoinHow is a way to join links.
type JoinHow string

// The ways.
const (
	// JoinPeer: eBPF hands what the guest sends to the link's other end, which is a veth's in another namespace. It costs
	// a frame two thirds of what the others do, which are nearly alike.
	JoinPeer JoinHow = "redirect-peer"
	// JoinRedirect: eBPF sends it over the link, which may have no such end, or a queue that is not to be passed by.
	JoinRedirect JoinHow = "redirect"
	// JoinForward: nft's netdev family, where eBPF cannot be loaded.
	JoinForward JoinHow = "nft-fwd"
	// JoinMirred: filters of traffic control.
	JoinMirred JoinHow = "mirred"
)

// JoinWays are all ways in the order in which they are tried.
func JoinWays() []JoinHow { return []JoinHow{JoinPeer, JoinRedirect, JoinForward, JoinMirred} }

// String prints what is joined, and what is kept.
func (j Join) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "join %s %s", j.Tap, j.Link)
	word(&b, "how", string(j.How))
	for _, ip := range j.Own {
		word(&b, "own", ip.String())
	}
	if j.Near.IsValid() {
		word(&b, "near", j.Near.String())
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
