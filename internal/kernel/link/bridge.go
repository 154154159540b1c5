// SPDX-License-Identifier: Apache-2.0

package link

import (
	"encoding/binary"

	"golang.org/x/sys/unix"

	"github.com/weft-net/weft/internal/kernel/netlink"
	"github.com/weft-net/weft/internal/kernel/rtnl"
	"github.com/weft-net/weft/internal/state"
)

// hz is the unit of a bridge's times: USER_HZ, hundredths of a second.
const hz = 100

// SetBridge requests a change of a bridge's attributes.
func SetBridge(index int, name string, a state.BridgeAttrs) *rtnl.Message {
	m := rtnl.New(unix.RTM_NEWLINK, 0, "set bridge", rtnl.Name(name), ifinfo(index, 0, 0))
	m.Nest(unix.IFLA_LINKINFO, func() {
		m.Attr(unix.IFLA_INFO_KIND, []byte(state.Bridge))
		m.Nest(unix.IFLA_INFO_DATA, func() { bridge(m, a) })
	})
	return m
}

func bridge(m *rtnl.Message, a state.BridgeAttrs) {
	if a.VLANFiltering != nil {
		m.Uint8(unix.IFLA_BR_VLAN_FILTERING, bit(*a.VLANFiltering))
	}
	if a.McastSnooping != nil {
		m.Uint8(unix.IFLA_BR_MCAST_SNOOPING, bit(*a.McastSnooping))
	}
	if a.GroupFwdMask != nil {
		m.Uint16(unix.IFLA_BR_GROUP_FWD_MASK, uint16(*a.GroupFwdMask))
	}
	if a.AgeingTimeSecs != nil {
		m.Uint32(unix.IFLA_BR_AGEING_TIME, uint32(*a.AgeingTimeSecs*hz))
	}
}

func decodeBridge(data []byte) *state.BridgeAttrs {
	a := &state.BridgeAttrs{}
	for kind, data := range netlink.Attrs(data) {
		switch kind {
		case unix.IFLA_BR_VLAN_FILTERING:
			a.VLANFiltering = isOn(data)
		case unix.IFLA_BR_MCAST_SNOOPING:
			a.McastSnooping = isOn(data)
		case unix.IFLA_BR_GROUP_FWD_MASK:
			if len(data) >= 2 {
				v := int(binary.NativeEndian.Uint16(data))
				a.GroupFwdMask = &v
			}
		case unix.IFLA_BR_AGEING_TIME:
			v := int(number(data) / hz)
			a.AgeingTimeSecs = &v
		}
	}
	return a
}

// portFlag maps one attribute of a bridge port to its number.
type portFlag struct {
	kind  uint16
	value **bool
}

func portFlags(a *state.PortAttrs) []portFlag {
	return []portFlag{
		{unix.IFLA_BRPORT_MODE, &a.Hairpin},
		{unix.IFLA_BRPORT_LEARNING, &a.Learning},
		{unix.IFLA_BRPORT_UNICAST_FLOOD, &a.Flood},
		{unix.IFLA_BRPORT_MCAST_FLOOD, &a.McastFlood},
		{unix.IFLA_BRPORT_BCAST_FLOOD, &a.BcastFlood},
		{unix.IFLA_BRPORT_ISOLATED, &a.Isolated},
		{unix.IFLA_BRPORT_NEIGH_SUPPRESS, &a.NeighSupp},
	}
}

// port adds a port's attributes to a link message (IFLA_INFO_SLAVE_DATA).
func port(m *rtnl.Message, a state.PortAttrs) {
	m.Nest(unix.IFLA_LINKINFO, func() {
		m.Attr(unix.IFLA_INFO_SLAVE_KIND, []byte(state.Bridge))
		m.Nest(unix.IFLA_INFO_SLAVE_DATA, func() {
			for _, f := range portFlags(&a) {
				if *f.value != nil {
					m.Uint8(f.kind, bit(**f.value))
				}
			}
		})
	})
}

func decodePort(data []byte) *state.PortAttrs {
	a := &state.PortAttrs{}
	flags := portFlags(a)
	for kind, data := range netlink.Attrs(data) {
		for _, f := range flags {
			if f.kind == kind {
				*f.value = isOn(data)
			}
		}
	}
	return a
}

func bit(v bool) byte {
	if v {
		return 1
	}
	return 0
}

func isOn(b []byte) *bool { return truth(len(b) > 0 && b[0] != 0) }
