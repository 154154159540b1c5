// SPDX-License-Identifier: Apache-2.0

package link

import (
	"golang.org/x/sys/unix"

	"github.com/weft-net/weft/internal/kernel/rtnl"
	"github.com/weft-net/weft/internal/state"
)

// CreateOnParent requests a new link of that index on top of a parent, in whose namespace the request must be made. The
// link is created in the namespace of the descriptor, unless that is negative, and master is a link there.
func CreateOnParent(l state.Link, index, master, parent, ns int) *rtnl.Message {
	m := Create(l, index, master, nil, 0, -1)
	m.Uint32(unix.IFLA_LINK, uint32(parent))
	if ns >= 0 {
		m.Uint32(unix.IFLA_NET_NS_FD, uint32(ns))
	}
	return m
}

// SetAttrs requests a change of those attributes of a link's kind that can change.
func SetAttrs(index int, l state.Link) *rtnl.Message {
	m := rtnl.New(unix.RTM_NEWLINK, 0, "set", l, ifinfo(index, 0, 0))
	m.Nest(unix.IFLA_LINKINFO, func() {
		m.Attr(unix.IFLA_INFO_KIND, []byte(l.Kind))
		if l.Kind == state.VXLAN && l.VXLAN != nil {
			m.Nest(unix.IFLA_INFO_DATA, func() { vxlanChange(m, *l.VXLAN) })
			return
		}
		attrs(m, l)
	})
	return m
}

// attrs appends the attributes of the link's kind (IFLA_INFO_DATA). A tap device has none that a message can contain.
func attrs(m *rtnl.Message, l state.Link) {
	var fill func()
	switch {
	case l.Kind == state.Bridge && l.Bridge != nil:
		fill = func() { bridge(m, *l.Bridge) }
	case (l.Kind == state.Macvlan || l.Kind == state.Macvtap) && l.Macvlan != nil:
		fill = func() { macvlan(m, *l.Macvlan) }
	case l.Kind == state.Ipvlan && l.Ipvlan != nil:
		fill = func() { ipvlan(m, *l.Ipvlan) }
	case l.Kind == state.VLAN && l.VLAN != nil:
		fill = func() { vlan(m, *l.VLAN) }
	case l.Kind == state.VRF && l.VRF != nil:
		fill = func() { vrf(m, *l.VRF) }
	case l.Kind == state.IPIP && l.IPIP != nil:
		fill = func() { ipip(m, *l.IPIP) }
	case l.Kind == state.VXLAN && l.VXLAN != nil:
		fill = func() { vxlan(m, *l.VXLAN) }
	default:
		return
	}
	m.Nest(unix.IFLA_INFO_DATA, fill)
}

// decodeAttrs decodes the attributes of the link's kind.
func (f *Found) decodeAttrs(data []byte) {
	switch f.Kind {
	case state.Bridge:
		f.Bridge = decodeBridge(data)
	case state.Macvlan, state.Macvtap:
		f.Macvlan = decodeMacvlan(data)
	case state.Ipvlan:
		f.Ipvlan = decodeIpvlan(data)
	case state.VLAN:
		f.VLAN = decodeVLAN(data)
	case state.VRF:
		f.VRF = decodeVRF(data)
	case state.VXLAN:
		f.VXLAN = decodeVXLAN(data)
	case state.IPIP:
		f.IPIP = decodeIPIP(data)
	case state.Tap:
		f.Tun = decodeTun(data)
	}
}
