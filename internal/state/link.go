// SPDX-License-Identifier: Apache-2.0

package state

import (
	"fmt"
	"strings"
)

// Kind is a link's kind as rtnetlink names it (IFLA_INFO_KIND).
type Kind string

// The kinds that weft makes. The empty kind means a link that weft did not make (lo, a physical device): it is changed,
// but never created and never deleted.
const (
	Veth   Kind = "veth"
	Bridge Kind = "bridge"
	Dummy  Kind = "dummy"
	Ifb    Kind = "ifb"
	// These have a parent.
	Macvlan Kind = "macvlan"
	// Macvtap is a macvlan link that a hypervisor opens by /dev/tapN, where N is its index; its attributes are those of a
	// macvlan link.
	Macvtap Kind = "macvtap"
	Ipvlan  Kind = "ipvlan"
	VLAN    Kind = "vlan"
	VRF     Kind = "vrf"
	// VXLAN carries Ethernet over UDP.
	VXLAN Kind = "vxlan"
	// Tap is a persistent tap or tun device; the kernel calls both by one name.
	Tap Kind = "tun"
	// IPIP carries IPv4 in IPv4.
	IPIP Kind = "ipip"
	// Wireguard encrypts. Its keys and peers are not part of the link: they are secret, and set by another driver.
	Wireguard Kind = "wireguard"
)

// Link is a network interface. Unset fields are not compared.
type Link struct {
	Name string `json:"name"`
	Kind Kind   `json:"kind,omitempty"`
	// Index is the index that the link is created with, because a program knows it before the link exists; 0: any. It is
	// not compared.
	Index int `json:"index,omitempty"`
	// MAC is the link's MAC address; the zero MAC is unset.
	MAC MAC `json:"mac,omitzero"`
	// MTU in bytes; 0 is unset.
	MTU int `json:"mtu,omitempty"`
	// TxQLen is the length of the transmit queue in packets.
	TxQLen *int `json:"txQLen,omitempty"`
	// Queues is the number of queues in each direction that a veth link is created with; 0 means one. It is not
	// compared.
	Queues int `json:"queues,omitempty"`
	// Up is the administrative state.
	Up *bool `json:"up,omitempty"`
	// Master is the bridge (later: VRF, bond) the link is enslaved to, by name in the same space.
	Master string `json:"master,omitempty"`
	// Alias is the ifalias, which contains the owner's mark.
	Alias    string `json:"alias,omitempty"`
	Promisc  *bool  `json:"promisc,omitempty"`
	AllMulti *bool  `json:"allmulti,omitempty"`
	// Peer is the other end of a veth pair. Both ends are named in the fragment and made in one request.
	Peer *Peer `json:"peer,omitempty"`
	// MovedFrom is where the link was before: it is not created but moved from there, under its new name. Remove moves
	// it back.
	MovedFrom *Origin `json:"from,omitempty"`
	// Parent is the lower link of a macvlan, ipvlan or vlan link.
	Parent *Parent `json:"parent,omitempty"`
	// These hold the attributes of links of those kinds.
	Macvlan *MacvlanAttrs `json:"macvlan,omitempty"`
	Ipvlan  *IpvlanAttrs  `json:"ipvlan,omitempty"`
	VLAN    *VLANAttrs    `json:"vlan,omitempty"`
	VRF     *VRFAttrs     `json:"vrf,omitempty"`
	VXLAN   *VXLANAttrs   `json:"vxlan,omitempty"`
	Tun     *TunAttrs     `json:"tun,omitempty"`
	IPIP    *IPIPAttrs    `json:"ipip,omitempty"`
	// Bridge holds the attributes of a bridge device.
	Bridge *BridgeAttrs `json:"bridge,omitempty"`
	// Port holds the attributes of the link as a bridge's port.
	Port *PortAttrs `json:"port,omitempty"`
	// VLANs are the VLANs of the link as a bridge's port.
	VLANs *PortVLANs `json:"vlans,omitempty"`
	// Shared marks a link with several owners: Remove leaves it.
	Shared bool `json:"shared,omitempty"`
	// Recreate lets Apply delete and re-create a link of the owner's when attributes differ that cannot be changed.
	Recreate bool `json:"remade,omitempty"`
	// ReplaceUnmarked lets Apply delete a link of the same name and kind that has no mark, and make the link in its
	// place.
	ReplaceUnmarked bool `json:"replaces,omitempty"`
	// Adopt lets Apply treat a link of the wanted kind that has no mark as the owner's, whichever program made it.
	Adopt bool `json:"adopted,omitempty"`
	// TxChecksum makes the link's device compute the checksums of sent packets (ethtool's tx-checksumming); off: the
	// kernel computes them.
	TxChecksum *bool `json:"txChecksum,omitempty"`
}

// Peer names the other end of a veth pair.
type Peer struct {
	Space SpaceName `json:"space"`
	Name  string    `json:"name"`
}

// Origin is where a moved link was, and where Remove moves it back to.
type Origin struct {
	Space SpaceName `json:"space"`
	Name  string    `json:"name"`
	// Hardware marks a physical device, which outlives its namespace: the kernel moves it to the initial namespace a
	// while after its own was deleted.
	Hardware bool `json:"hardware,omitempty"`
}

// BridgeAttrs are the attributes of a bridge device (IFLA_BR_*).
type BridgeAttrs struct {
	VLANFiltering  *bool `json:"vlanFiltering,omitempty"`
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
	if l.Index != 0 {
		fmt.Fprintf(&b, " index %d", l.Index)
	}
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
	if l.MovedFrom != nil {
		fmt.Fprintf(&b, " from %s@%s", l.MovedFrom.Name, l.MovedFrom.Space)
	}
	l.attrs(&b)
	flag(&b, "promisc", l.Promisc)
	flag(&b, "allmulti", l.AllMulti)
	flag(&b, "tx_checksum", l.TxChecksum)
	if l.Bridge != nil {
		flag(&b, "vlan_filtering", l.Bridge.VLANFiltering)
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
	if l.VLANs != nil {
		word(&b, "vlans", l.VLANs.String())
	}
	word(&b, "alias", l.Alias)
	return b.String()
}

// On returns a pointer to true, for an optional flag.
func On() *bool { v := true; return &v }

// Off returns a pointer to false, for an optional flag.
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
