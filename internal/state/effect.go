// SPDX-License-Identifier: Apache-2.0

package state

import (
	"fmt"
	"net/netip"
	"strings"
)

// Effect is an action performed once, when its trigger occurs; Read and Diff ignore it.
type Effect struct {
	Kind  EffectKind   `json:"kind"`
	When  Trigger      `json:"when,omitempty"`
	Space SpaceName    `json:"space"`
	Link  string       `json:"link,omitempty"`
	Addrs []netip.Addr `json:"addrs,omitempty"`
	Flows []Flow       `json:"flows,omitempty"`
	// Owner and Group are the user and group IDs that a device gets.
	Owner uint32 `json:"owner,omitempty"`
	Group uint32 `json:"group,omitempty"`
	// Milliseconds is how long a probe takes.
	Milliseconds int `json:"milliseconds,omitempty"`
}

// Trigger is the moment at which an effect is performed.
type Trigger string

// The triggers.
const (
	// OnApply: after the fragment has been applied.
	OnApply Trigger = ""
	// OnRemove: after the fragment has been removed.
	OnRemove Trigger = "remove"
	// BeforeAddrs: when the links are up, before addresses are added to those of the pod. Not if the link has them all.
	BeforeAddrs Trigger = "before-addresses"
)

// EffectKind is the kind of an effect.
type EffectKind string

// The effects that plans use.
const (
	// Announce sends a gratuitous ARP or an unsolicited neighbor advertisement for each address, after the link is up.
	Announce EffectKind = "announce"
	// WaitDAD waits until no IPv6 address of the link is tentative, at most 5 s.
	WaitDAD EffectKind = "wait-dad"
	// ProbeAddrs asks the other hosts on the link for the addresses (RFC 5227, 2.1; RFC 4862, 5.4) for so long, and
	// fails if one of them has an address. Only BeforeAddrs.
	ProbeAddrs EffectKind = "probe-addresses"
	// FlushConntrack deletes the conntrack entries that match one of the flows, because their translation is out of
	// date.
	FlushConntrack EffectKind = "flush-conntrack"
	// OwnDevice makes the file /dev/tapN of the link, a macvtap, the property of Owner and Group.
	OwnDevice EffectKind = "own-device"
)

// Flow matches conntrack entries; unset fields match all.
type Flow struct {
	IPv6 bool `json:"ipv6,omitempty"`
	// Proto is tcp, udp or sctp.
	Proto string `json:"proto,omitempty"`
	// Port and Dst are the original destination.
	Port uint16     `json:"port,omitempty"`
	Dst  netip.Addr `json:"dst,omitzero"`
	// ReplySrc is the address that replies.
	ReplySrc netip.Addr `json:"to,omitzero"`
}

// String prints the flow as conntrack(8) does.
func (f Flow) String() string {
	words := []string{"ipv4"}
	if f.IPv6 {
		words[0] = "ipv6"
	}
	if f.Proto != "" {
		words = append(words, f.Proto)
	}
	if f.Dst.IsValid() {
		words = append(words, "dst="+f.Dst.String())
	}
	if f.Port != 0 {
		words = append(words, fmt.Sprintf("dport=%d", f.Port))
	}
	if f.ReplySrc.IsValid() {
		words = append(words, "reply-src="+f.ReplySrc.String())
	}
	return strings.Join(words, " ")
}

// String prints the effect.
func (e Effect) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "effect %s %s", e.Kind, e.Space)
	if e.When != OnApply {
		fmt.Fprintf(&b, " on %s", e.When)
	}
	if e.Link != "" || len(e.Addrs) > 0 {
		fmt.Fprintf(&b, " dev %s %v", e.Link, e.Addrs)
	}
	if e.Milliseconds > 0 {
		fmt.Fprintf(&b, " for %d ms", e.Milliseconds)
	}
	if e.Kind == OwnDevice {
		fmt.Fprintf(&b, " user %d group %d", e.Owner, e.Group)
	}
	for _, f := range e.Flows {
		fmt.Fprintf(&b, " [%s]", f)
	}
	return b.String()
}
