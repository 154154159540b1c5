// SPDX-License-Identifier: Apache-2.0

package link

import (
	"encoding/binary"
	"net/netip"

	"golang.org/x/sys/unix"

	"github.com/weft-net/weft/internal/kernel/netlink"
	"github.com/weft-net/weft/internal/kernel/rtnl"
	"github.com/weft-net/weft/internal/state"
)

func vxlan(m *rtnl.Message, a state.VXLANAttrs) {
	m.Uint32(unix.IFLA_VXLAN_ID, a.VNI)
	local := uint16(unix.IFLA_VXLAN_LOCAL)
	if a.Local.Is6() {
		local = unix.IFLA_VXLAN_LOCAL6
	}
	m.Attr(local, a.Local.AsSlice())
	m.Attr(unix.IFLA_VXLAN_PORT, binary.BigEndian.AppendUint16(nil, a.UDPPort()))
	if a.Learning != nil {
		m.Uint8(unix.IFLA_VXLAN_LEARNING, bit(*a.Learning))
	}
	if a.GBP {
		m.Attr(unix.IFLA_VXLAN_GBP, nil)
	}
	if a.Local.Is4() {
		m.Uint8(unix.IFLA_VXLAN_UDP_CSUM, 0) // RFC 7348, 5; over IPv6 there must be one
	}
}

// vxlanChange adds only the attributes that can be changed: the kernel refuses the others even if they are unchanged.
func vxlanChange(m *rtnl.Message, a state.VXLANAttrs) {
	local := uint16(unix.IFLA_VXLAN_LOCAL)
	if a.Local.Is6() {
		local = unix.IFLA_VXLAN_LOCAL6
	}
	m.Attr(local, a.Local.AsSlice())
	if a.Learning != nil {
		m.Uint8(unix.IFLA_VXLAN_LEARNING, bit(*a.Learning))
	}
}

func decodeVXLAN(data []byte) *state.VXLANAttrs {
	a := &state.VXLANAttrs{}
	for kind, data := range netlink.Attrs(data) {
		switch kind {
		case unix.IFLA_VXLAN_ID:
			a.VNI = number(data)
		case unix.IFLA_VXLAN_LOCAL, unix.IFLA_VXLAN_LOCAL6:
			if local, ok := netip.AddrFromSlice(data); ok && !local.IsUnspecified() {
				a.Local = local
			}
		case unix.IFLA_VXLAN_PORT:
			if len(data) >= 2 {
				a.Port = binary.BigEndian.Uint16(data)
			}
		case unix.IFLA_VXLAN_LEARNING:
			on := len(data) > 0 && data[0] != 0
			a.Learning = &on
		case unix.IFLA_VXLAN_GBP:
			a.GBP = true
		}
	}
	return a
}
