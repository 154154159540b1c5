// SPDX-License-Identifier: Apache-2.0

package state

import "net/netip"

// RouteLookup is the kernel's answer to how it routes a packet.
type RouteLookup struct {
	// Errno is the name of the error with which the kernel refuses the packet ("EHOSTUNREACH"); then the rest is empty.
	Errno string `json:"errno,omitempty"`
	// Type is unicast, local, broadcast, blackhole, unreachable, prohibit …
	Type    string     `json:"type,omitempty"`
	Out     string     `json:"out,omitempty"` // the interface
	Gateway netip.Addr `json:"gateway,omitzero"`
	Source  netip.Addr `json:"source,omitzero"`
	Table   uint32     `json:"table,omitempty"`
	// MTU is the MTU of the route in bytes, if it has one. Learned: the kernel learned it from an ICMP error.
	MTU     int  `json:"mtu,omitempty"`
	Learned bool `json:"learned,omitempty"`
}

// LinkStatus is the state of a network interface.
type LinkStatus struct {
	Name    string `json:"name"`
	Kind    string `json:"kind,omitempty"` // veth, bridge, vxlan, ipip, wireguard, tun; empty: hardware
	Up      bool   `json:"up"`
	Carrier bool   `json:"carrier"`
	MTU     int    `json:"mtu"` // bytes
	MAC     MAC    `json:"mac,omitzero"`
	Master  string `json:"master,omitempty"`
	// VNI, UDPPort and Local are of a VXLAN device; Local also of IPIP.
	VNI     int        `json:"vni,omitempty"`
	UDPPort int        `json:"udpPort,omitempty"`
	Local   netip.Addr `json:"local,omitzero"`
	// Programs are what decides about its packets besides netfilter: "an XDP program", "a tc filter of kind bpf …".
	Programs []string `json:"programs,omitempty"`
}

// NeighborStatus is an entry of the neighbor table.
type NeighborStatus struct {
	MAC MAC `json:"mac,omitzero"`
	// State is reachable, stale, delay, probe, permanent, noarp, incomplete, failed or none.
	State string `json:"state"`
}

// FDBStatus is an entry of a forwarding table.
type FDBStatus struct {
	Dst netip.Addr `json:"dst,omitzero"` // the tunnel's other end
}

// NeighborTableStatus is the size of a neighbor table of the kernel, which all namespaces share.
type NeighborTableStatus struct {
	// Entries in all namespaces, and of those the permanent ones of the namespace that was asked, which do not count.
	Entries   int `json:"entries"`
	Permanent int `json:"permanent"`
	// Max is the limit for entries that are not permanent (gc_thresh3); 0: not known.
	Max int `json:"max"`
	// Full is how many entries the limit has refused since the boot.
	Full uint64 `json:"full"`
}

// ListeningSocket is a socket that receives: a TCP socket that listens, or a UDP socket.
type ListeningSocket struct {
	Addr netip.Addr `json:"addr"`
	Port uint16     `json:"port"`
}

// Ruleset are the packet filters of other programs in a namespace.
type Ruleset struct {
	Chains []RulesetChain `json:"chains,omitempty"`
	// Unreadable names tables that decide, too, and that cannot be read (those of iptables-legacy).
	Unreadable []string `json:"unreadable,omitempty"`
}

// RulesetChain is a chain of nftables, which iptables-nft uses, too.
type RulesetChain struct {
	Family string `json:"family"` // ip, ip6, inet, bridge, netdev
	Table  string `json:"table"`
	Name   string `json:"name"`
	// Hook is prerouting, input, forward, output, postrouting, ingress or egress; empty: other chains jump to it.
	Hook string `json:"hook,omitempty"`
	// Devices are the interfaces of a chain at ingress or egress; "eth*" is all whose names begin so.
	Devices  []string      `json:"devices,omitempty"`
	Type     string        `json:"type,omitempty"` // filter, nat, route
	Priority int           `json:"priority,omitempty"`
	Policy   string        `json:"policy,omitempty"`
	Rules    []RulesetRule `json:"rules,omitempty"`
}

// String returns the chain as nft names it: "inet fw forward".
func (c RulesetChain) String() string { return c.Family + " " + c.Table + " " + c.Name }

// RulesetRule is a rule of a chain.
type RulesetRule struct {
	Handle uint64 `json:"handle"`
	// Text is the rule as nft prints it. Partial: only its verdict could be read.
	Text    string `json:"text"`
	Partial bool   `json:"partial,omitempty"`
}
