// SPDX-License-Identifier: Apache-2.0

package link

import (
	"golang.org/x/sys/unix"

	"github.com/weft-net/weft/internal/kernel/rtnl"
	"github.com/weft-net/weft/internal/state"
)

// CreateUpon asks for a new link of the given index upon a parent, of which the request must be made in the namespace.
// The link is made in the namespace of the descriptor, unless that is negative, and master is a link there.
func CreateUpon(l state.Link, index, master, parent, ns int) *rtnl.Message {
	m := Create(l, index, master, nil, 0, -1)
	m.Uint32(unix.IFLA_LINK, uint32(parent))
	if ns >= 0 {
		m.Uint32(unix.IFLA_NET_NS_FD, uint32(ns))
	}
	return m
}

// SetAttrs asks for those attributes of a link's kind that can change.
func SetAttrs(index int, l state.Link) *rtnl.Message {
	m := rtnl.New(unix.RTM_NEWLINK, 0, "set", l, ifinfo(index, 0, 0))
	m.Nest(unix.IFLA_LINKINFO, func() {
		m.Attr(unix.IFLA_INFO_KIND, []byte(l.Kind))
		if l.Kind == state.Vxlan && l.Vxlan != nil {
			m.Nest(unix.IFLA_INFO_DATA, func() { vxlanChange(m, *l.Vxlan) })
			return
		}
		attrs(m, l)
	})
	return m
}

// attrs appends the attributes of the link's kind (IFLA_INFO_DATA). A tap device has none that a message could carry.
func attrs(m *rtnl.Message, l state.Link) {
	var fill func()
	switch {
	case l.Kind == state.Bridge && l.Bridge != nil:
		fill = func() { bridge(m, *l.Bridge) }
	case l.Kind == state.Macvlan && l.Macvlan != nil:
		fill = func() { macvlan(m, *l.Macvlan) }
	case l.Kind == state.Ipvlan && l.Ipvlan != nil:
		fill = func() { ipvlan(m, *l.Ipvlan) }
	case l.Kind == state.Vlan && l.Vlan != nil:
		fill = func() { vlan(m, *l.Vlan) }
	case l.Kind == state.VRF && l.VRF != nil:
		fill = func() { vrf(m, *l.VRF) }
	case l.Kind == state.IPIP && l.IPIP != nil:
		fill = func() { ipip(m, *l.IPIP) }
	case l.Kind == state.Vxlan && l.Vxlan != nil:
		fill = func() { vxlan(m, *l.Vxlan) }
	default:
		return
	}
	m.Nest(unix.IFLA_INFO_DATA, fill)
}

// decodeAttrs reads the attributes of the link's kind.
func (f *Found) decodeAttrs(data []byte) {
	switch f.Kind {
	case state.Bridge:
		f.Bridge = decodeBridge(data)
	case state.Macvlan:
		f.Macvlan = decodeMacvlan(data)
	case state.Ipvlan:
		f.Ipvlan = decodeIpvlan(data)
	case state.Vlan:
		f.Vlan = decodeVlan(data)
	case state.VRF:
		f.VRF = decodeVRF(data)
	case state.Vxlan:
		f.Vxlan = decodeVxlan(data)
	case state.IPIP:
		f.IPIP = decodeIPIP(data)
	case state.Tap:
		f.Tun = decodeTun(data)
	}
}
