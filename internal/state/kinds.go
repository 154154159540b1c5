// SPDX-License-Identifier: Apache-2.0

package state

import (
	"fmt"
	"net/netip"
	"strings"
)

// Parent is the link that a macvlan, ipvlan or vlan link is made upon; it may be in the other space.
type Parent struct {
	Space SpaceName `json:"space"`
	Name  string    `json:"name"`
}

// MacvlanAttrs are the attributes of a macvlan link.
type MacvlanAttrs struct {
	// Mode is private, vepa, bridge or passthru.
	Mode string `json:"mode,omitempty"`
	// BcQueueLen is how many broadcasts may wait on the parent for its macvlan links.
	BcQueueLen *int `json:"bcQueueLen,omitempty"`
}

// IpvlanAttrs are the attributes of an ipvlan link.
type IpvlanAttrs struct {
	// Mode is l2, l3 or l3s.
	Mode string `json:"mode,omitempty"`
}

// VlanAttrs are the attributes of a vlan link.
type VlanAttrs struct {
	ID int `json:"id"`
}

// VRFAttrs are the attributes of a VRF: the routing table of the links enslaved to it.
type VRFAttrs struct {
	Table uint32 `json:"table"`
}

// VxlanAttrs are the attributes of a VXLAN device (IFLA_VXLAN_*). Only Local, within its family, and Learning can
// change; Learning is not compared when it is unset.
type VxlanAttrs struct {
	// VNI is the network's number, 24 bits.
	VNI uint32 `json:"vni"`
	// Port is the UDP port; 0 is the kernel's, 8472.
	Port uint16 `json:"port,omitempty"`
	// Local is the node's own end of the tunnels.
	Local netip.Addr `json:"local"`
	// Learning has the device note who sent what from where.
	Learning *bool `json:"learning,omitempty"`
	// GBP carries the sender's mark as a group policy tag.
	GBP bool `json:"gbp,omitempty"`
}

// UDPPort is the port that counts.
func (a VxlanAttrs) UDPPort() uint16 {
	if a.Port == 0 {
		return DefaultVxlanPort
	}
	return a.Port
}

// DefaultVxlanPort is what the kernel takes when none is given, and flannel with it.
const DefaultVxlanPort = 8472

// IPIPAttrs are the attributes of an ipip device: it has any number of far ends, each the gateway of a route.
type IPIPAttrs struct {
	// Local is the node's own end of the tunnels.
	Local netip.Addr `json:"local"`
}

// TunAttrs are the attributes of a persistent tap device. They are given when it is made and never change.
type TunAttrs struct {
	// IP has the device carry IP packets instead of Ethernet: a tun device, which has no MAC.
	IP         bool `json:"ip,omitempty"`
	MultiQueue bool `json:"multiQueue,omitempty"`
	// Owner and Group are who may open the device beside root, by number.
	Owner *uint32 `json:"owner,omitempty"`
	Group *uint32 `json:"group,omitempty"`
	// SELinux is the security context in which the device is made; written only, and only where SELinux is on.
	SELinux string `json:"selinux,omitempty"`
}

// attrs prints what only links of some kinds have.
func (l Link) attrs(b *strings.Builder) {
	if l.Parent != nil {
		fmt.Fprintf(b, " upon %s@%s", l.Parent.Name, l.Parent.Space)
	}
	if l.Macvlan != nil {
		word(b, "mode", l.Macvlan.Mode)
		number(b, "bcqueuelen", l.Macvlan.BcQueueLen)
	}
	if l.Ipvlan != nil {
		word(b, "mode", l.Ipvlan.Mode)
	}
	if l.Vlan != nil {
		fmt.Fprintf(b, " id %d", l.Vlan.ID)
	}
	if l.VRF != nil {
		fmt.Fprintf(b, " table %d", l.VRF.Table)
	}
	if l.Vxlan != nil {
		fmt.Fprintf(b, " id %d local %s port %d", l.Vxlan.VNI, l.Vxlan.Local, l.Vxlan.UDPPort())
		flag(b, "learning", l.Vxlan.Learning)
		if l.Vxlan.GBP {
			b.WriteString(" gbp")
		}
	}
	if l.IPIP != nil {
		fmt.Fprintf(b, " local %s", l.IPIP.Local)
	}
	if l.Tun == nil {
		return
	}
	if l.Tun.IP {
		b.WriteString(" mode tun")
	}
	if l.Tun.MultiQueue {
		b.WriteString(" multi_queue")
	}
	if l.Tun.Owner != nil {
		fmt.Fprintf(b, " user %d", *l.Tun.Owner)
	}
	if l.Tun.Group != nil {
		fmt.Fprintf(b, " group %d", *l.Tun.Group)
	}
	word(b, "context", l.Tun.SELinux)
}
