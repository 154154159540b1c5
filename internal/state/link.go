// SPDX-License-Identifier: Apache-2.0

package state

import (
	"fmt"
	"strings"
)

// Kind is a link's kind as rtnetlink names it (IFLA_INFO_KIND).
type Kind string

// The kinds that weft makes. The empty kind names a link that somebody else made (lo, a physical device): it is
// changed, never created and never deleted.
const (
	Veth   Kind = "veth"
	Bridge Kind = "bridge"
	Dummy  Kind = "dummy"
	Ifb    Kind = "ifb"
	// These have a parent.
	Macvlan Kind = "macvlan"
	Ipvlan  Kind = "ipvlan"
	Vlan    Kind = "vlan"
	VRF     Kind = "vrf"
	// Vxlan carries Ethernet over UDP.
	Vxlan Kind = "vxlan"
	// Tap is a persistent tap or tun device; the kernel calls both by one name.
	Tap Kind = "tun"
	// IPIP carries IPv4 in IPv4.
	IPIP Kind = "ipip"
	// Wireguard encrypts. Its keys and peers are no part of the link: they are secret, and another driver's.
	Wireguard Kind = "wireguard"
)

// Link is a network interface. Unset fields are not compared.
type Link struct {
	Name string `json:"name"`
	Kind Kind   `json:"kind,omitempty"`
	// MAC is the link's hardware address, unset when zero.
	MAC MAC `json:"mac,omitzero"`
	// MTU in bytes; 0 is unset.
	MTU int `json:"mtu,omitempty"`
	// TxQLen is the length of the transmit queue in packets.
	TxQLen *int `json:"txQLen,omitempty"`
	// Queues is how many queues a veth link is made with, in each direction; 0 is one. It is not compared.
	Queues int `json:"queues,omitempty"`
	// Up is the administrative state.
	Up *bool `json:"up,omitempty"`
	// Master is the bridge (later: VRF, bond) the link is enslaved to, by name in the same space.
	Master string `json:"master,omitempty"`
	// Alias is the ifalias; weft writes the owner's mark into it.
	Alias    string `json:"alias,omitempty"`
	Promisc  *bool  `json:"promisc,omitempty"`
	AllMulti *bool  `json:"allmulti,omitempty"`
	// Peer is the other end of a veth pair. Both ends are named in the fragment and made in one request.
	Peer *Peer `json:"peer,omitempty"`
	// From says where the link is now: it is not made but moved here, under its new name. Remove moves it back.
	From *Origin `json:"from,omitempty"`
	// Parent is what a macvlan, ipvlan or vlan link is made upon.
	Parent *Parent `json:"parent,omitempty"`
	// These hold the attributes of links of those kinds.
	Macvlan *MacvlanAttrs `json:"macvlan,omitempty"`
	Ipvlan  *IpvlanAttrs  `json:"ipvlan,omitempty"`
	Vlan    *VlanAttrs    `json:"vlan,omitempty"`
	VRF     *VRFAttrs     `json:"vrf,omitempty"`
	Vxlan   *VxlanAttrs   `json:"vxlan,omitempty"`
	Tun     *TunAttrs     `json:"tun,omitempty"`
	IPIP    *IPIPAttrs    `json:"ipip,omitempty"`
	// Bridge holds the attributes of a bridge device.
	Bridge *BridgeAttrs `json:"bridge,omitempty"`
	// Port holds the attributes of the link as a bridge's port.
	Port *PortAttrs `json:"port,omitempty"`
	// Vlans are the VLANs of the link as a bridge's port.
	Vlans *PortVlans `json:"vlans,omitempty"`
	// Shared marks a link with several owners: Remove leaves it.
	Shared bool `json:"shared,omitempty"`
	// Remade lets Apply delete a link of the owner's and make it anew where it has attributes that cannot be changed.
	Remade bool `json:"remade,omitempty"`
	// Replaces lets Apply delete what nobody has marked and has the name and the kind, and make the link in its place.
	Replaces bool `json:"replaces,omitempty"`
	// Adopted lets Apply take a link of the wanted kind for the owner's that has no mark, whoever made it.
	Adopted bool `json:"adopted,omitempty"`
	// TxChecksum has the link's device compute the checksums of what is sent through it (ethtool's tx-checksumming); off:
	// the kernel does.
	TxChecksum *bool `json:"txChecksum,omitempty"`
}

// Peer names the other end of a veth pair.
type Peer struct {
	Space SpaceName `json:"space"`
	Name  string    `json:"name"`
}

// Origin is where a moved link was, and where it goes back to.
type Origin struct {
	Space SpaceName `json:"space"`
	Name  string    `json:"name"`
	// Hardware outlives the namespace that it is in: the kernel puts it back, a while after the namespace has died.
	Hardware bool `json:"hardware,omitempty"`
}

// BridgeAttrs are the attributes of a bridge device (IFLA_BR_*).
type BridgeAttrs struct {
	VlanFiltering  *bool `json:"vlanFiltering,omitempty"`
	McastSnooping  *bool `json:"mcastSnooping,omitempty"`
	GroupFwdMask   *int  `json:"groupFwdMask,omitempty"`
	AgeingTimeSecs *int  `json:"ageingTimeSecs,omitempty"`
}

// PortAttrs are the attributes of a bridge's port (IFLA_BRPORT_*).
type PortAttrs struct {
	Hairpin    *bool `json:"hairpin,omitempty"`
	Learning   *bool `json:"learning,omitempty"`
	Flood      *bool `json:"flood,omitempty"`
	McastFlood *bool `json:"mcastFlood,omitempty"`
	BcastFlood *bool `json:"bcastFlood,omitempty"`
	Isolated   *bool `json:"isolated,omitempty"`
	NeighSupp  *bool `json:"neighSuppress,omitempty"`
}

// String prints the link as "name kind key value …", set fields only.
func (l Link) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "link %s", l.Name)
	word(&b, "kind", string(l.Kind))
	if !l.MAC.IsZero() {
		word(&b, "mac", l.MAC.String())
	}
	if l.MTU != 0 {
		fmt.Fprintf(&b, " mtu %d", l.MTU)
	}
	number(&b, "qlen", l.TxQLen)
	if l.Queues > 1 {
		fmt.Fprintf(&b, " queues %d", l.Queues)
	}
	flag(&b, "up", l.Up)
	word(&b, "master", l.Master)
	if l.Peer != nil {
		fmt.Fprintf(&b, " peer %s@%s", l.Peer.Name, l.Peer.Space)
	}
	if l.From != nil {
		fmt.Fprintf(&b, " from %s@%s", l.From.Name, l.From.Space)
	}
	l.attrs(&b)
	flag(&b, "promisc", l.Promisc)
	flag(&b, "allmulti", l.AllMulti)
	flag(&b, "tx_checksum", l.TxChecksum)
	if l.Bridge != nil {
		flag(&b, "vlan_filtering", l.Bridge.VlanFiltering)
		flag(&b, "mcast_snooping", l.Bridge.McastSnooping)
		number(&b, "group_fwd_mask", l.Bridge.GroupFwdMask)
		number(&b, "ageing_time", l.Bridge.AgeingTimeSecs)
	}
	if l.Port != nil {
		flag(&b, "hairpin", l.Port.Hairpin)
		flag(&b, "learning", l.Port.Learning)
		flag(&b, "flood", l.Port.Flood)
		flag(&b, "mcast_flood", l.Port.McastFlood)
		flag(&b, "bcast_flood", l.Port.BcastFlood)
		flag(&b, "isolated", l.Port.Isolated)
		flag(&b, "neigh_suppress", l.Port.NeighSupp)
	}
	if l.Vlans != nil {
		word(&b, "vlans", l.Vlans.String())
	}
	word(&b, "alias", l.Alias)
	return b.String()
}

// On and Off are the two set values of an optional flag.
func On() *bool { v := true; return &v }

// Off is the set value false of an optional flag.
func Off() *bool { v := false; return &v }

func word(b *strings.Builder, key, value string) {
	if value != "" {
		fmt.Fprintf(b, " %s %s", key, value)
	}
}

func flag(b *strings.Builder, key string, value *bool) {
	if value == nil {
		return
	}
	on := "off"
	if *value {
		on = "on"
	}
	fmt.Fprintf(b, " %s %s", key, on)
}

func number(b *strings.Builder, key string, value *int) {
	if value != nil {
		fmt.Fprintf(b, " %s %d", key, *value)
	}
}
