// SPDX-License-Identifier: Apache-2.0

package state

import (
	"fmt"
	"net/netip"
	"strings"
)

// Parent is the lower link of a macvlan, ipvlan or vlan link; it may be in the other space.
type Parent struct {
	Space SpaceName `json:"space"`
	Name  string    `json:"name"`
}

// HostShimPrefix is the prefix of the names of the node's own macvlan links by which it reaches those of its pods.
const HostShimPrefix = "wshim-"

// MacvlanAttrs are the attributes of a macvlan link.
type MacvlanAttrs struct {
	// Mode is private, vepa, bridge or passthru.
	Mode string `json:"mode,omitempty"`
	// BcQueueLen is how many broadcast frames may be queued on the parent for its macvlan links.
	BcQueueLen *int `json:"bcQueueLen,omitempty"`
}

// IpvlanAttrs are the attributes of an ipvlan link.
type IpvlanAttrs struct {
	// Mode is l2, l3 or l3s.
	Mode string `json:"mode,omitempty"`
}

// VLANAttrs are the attributes of a vlan link.
type VLANAttrs struct {
	ID int `json:"id"`
}

// VRFAttrs are the attributes of a VRF: the routing table of the links enslaved to it.
type VRFAttrs struct {
	Table uint32 `json:"table"`
}

// VXLANAttrs are the attributes of a VXLAN device (IFLA_VXLAN_*). Only Local, within its family, and Learning can
// change; Learning is not compared when it is unset.
type VXLANAttrs struct {
	// VNI is the VXLAN network identifier, 24 bits.
	VNI uint32 `json:"vni"`
	// Port is the UDP port; 0 is DefaultVXLANPort.
	Port uint16 `json:"port,omitempty"`
	// Local is the node's own tunnel address.
	Local netip.Addr `json:"local"`
	// Learning lets the device learn which VTEP a MAC address is behind from the frames that it receives.
	Learning *bool `json:"learning,omitempty"`
	// GBP carries the packet's mark as a VXLAN group policy tag.
	GBP bool `json:"gbp,omitempty"`
}

// UDPPort returns the port in effect.
func (a VXLANAttrs) UDPPort() uint16 {
	if a.Port == 0 {
		return DefaultVXLANPort
	}
	return a.Port
}

// DefaultVXLANPort is the kernel's default, which flannel uses too.
const DefaultVXLANPort = 8472

// IPIPAttrs are the attributes of an ipip device; it has any number of remote ends, each the gateway of a route.
type IPIPAttrs struct {
	// Local is the node's own tunnel address.
	Local netip.Addr `json:"local"`
}

// TunAttrs are the attributes of a persistent tap device. They are set when it is created and never change.
type TunAttrs struct {
	// IP makes the device carry IP packets instead of Ethernet frames: a tun device, which has no MAC address.
	IP         bool `json:"ip,omitempty"`
	MultiQueue bool `json:"multiQueue,omitempty"`
	// Owner and Group are the user and group IDs that may open the device besides root.
	Owner *uint32 `json:"owner,omitempty"`
	Group *uint32 `json:"group,omitempty"`
	// SELinux is the security context in which the device is created; written only, and only where SELinux is enabled.
	SELinux string `json:"selinux,omitempty"`
}

// attrs prints the attributes that only links of some kinds have.
func (l Link) attrs(b *strings.Builder) {
	if l.Parent != nil {
		fmt.Fprintf(b, " upon %s@%s", l.Parent.Name, l.Parent.Space) // glossary: part of the listing format
	}
	if l.Macvlan != nil {
		word(b, "mode", l.Macvlan.Mode)
		number(b, "bcqueuelen", l.Macvlan.BcQueueLen)
	}
	if l.Ipvlan != nil {
		word(b, "mode", l.Ipvlan.Mode)
	}
	if l.VLAN != nil {
		fmt.Fprintf(b, " id %d", l.VLAN.ID)
	}
	if l.VRF != nil {
		fmt.Fprintf(b, " table %d", l.VRF.Table)
	}
	if l.VXLAN != nil {
		fmt.Fprintf(b, " id %d local %s port %d", l.VXLAN.VNI, l.VXLAN.Local, l.VXLAN.UDPPort())
		flag(b, "learning", l.VXLAN.Learning)
		if l.VXLAN.GBP {
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
