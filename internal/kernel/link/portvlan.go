// SPDX-License-Identifier: Apache-2.0

package link

import (
	"encoding/binary"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/weft-net/weft/internal/kernel/netlink"
	"github.com/weft-net/weft/internal/kernel/rtnl"
	"github.com/weft-net/weft/internal/state"
)

// What golang.org/x/sys/unix does not name (linux/rtnetlink.h, linux/if_bridge.h).
const (
	getVlan        = 114 // RTM_GETVLAN, Linux 5.6
	brVlanMsg      = 8   // sizeof(struct br_vlan_msg)
	vlanEntry      = 1   // BRIDGE_VLANDB_ENTRY
	vlanEntryInfo  = 1   // BRIDGE_VLANDB_ENTRY_INFO
	vlanEntryRange = 2   // BRIDGE_VLANDB_ENTRY_RANGE
	bridgeVlanInfo = 2   // IFLA_BRIDGE_VLAN_INFO

	vlanPVID, vlanUntagged, vlanBegin, vlanEnd = 1 << 1, 1 << 2, 1 << 3, 1 << 4
)

// LastVlan is the highest number that a VLAN can have.
const LastVlan = 4094

// ListVlans asks for the VLANs of a bridge's port, or of all ports when index is 0.
func ListVlans(index int) *rtnl.Message {
	header := make([]byte, brVlanMsg)
	header[0] = unix.AF_BRIDGE
	binary.NativeEndian.PutUint32(header[4:], uint32(index))
	return rtnl.New(getVlan, 0, "read VLANs of link", rtnl.Name(strconv.Itoa(index)), header)
}

// DecodeVlans reads RTM_NEWVLAN: some VLANs of one port.
func DecodeVlans(body []byte) (index int, ranges []state.VlanRange) {
	if len(body) < brVlanMsg {
		return 0, nil
	}
	for kind, data := range netlink.Attrs(body[brVlanMsg:]) {
		if kind != vlanEntry {
			continue
		}
		var r state.VlanRange
		for kind, data := range netlink.Attrs(data) {
			switch {
			case kind == vlanEntryInfo && len(data) >= 4:
				flags := binary.NativeEndian.Uint16(data)
				r.First, r.PVID, r.Untagged = binary.NativeEndian.Uint16(data[2:]), flags&vlanPVID != 0, flags&vlanUntagged != 0
			case kind == vlanEntryRange && len(data) >= 2:
				r.Last = binary.NativeEndian.Uint16(data)
			}
		}
		r.Last = max(r.First, r.Last)
		if r.First > 0 && r.Last <= LastVlan {
			ranges = append(ranges, r)
		}
	}
	return int(int32(binary.NativeEndian.Uint32(body[4:]))), ranges
}

// AddVlans asks for VLANs on a bridge's port. One that is there gets what the range says of it.
func AddVlans(index int, name string, ranges []state.VlanRange) *rtnl.Message {
	return portVlans(unix.RTM_SETLINK, "add VLANs to port", index, name, ranges)
}

// DelVlans asks for the end of VLANs on a bridge's port; those that it does not have are no error to the kernel.
func DelVlans(index int, name string, ranges []state.VlanRange) *rtnl.Message {
	return portVlans(unix.RTM_DELLINK, "delete VLANs of port", index, name, ranges)
}

func portVlans(kind uint16, verb string, index int, name string, ranges []state.VlanRange) *rtnl.Message {
	header := ifinfo(index, 0, 0)
	header[0] = unix.AF_BRIDGE
	m := rtnl.New(kind, 0, verb, rtnl.Name(name), header)
	m.Nest(unix.IFLA_AF_SPEC, func() {
		for _, r := range ranges {
			flags := uint16(0)
			if r.PVID {
				flags |= vlanPVID
			}
			if r.Untagged {
				flags |= vlanUntagged
			}
			if r.First == r.Last {
				m.Attr(bridgeVlanInfo, vlanInfo(flags, r.First))
				continue
			}
			m.Attr(bridgeVlanInfo, vlanInfo(flags|vlanBegin, r.First))
			m.Attr(bridgeVlanInfo, vlanInfo(flags|vlanEnd, r.Last))
		}
	})
	return m
}

// vlanInfo is struct bridge_vlan_info.
func vlanInfo(flags, id uint16) []byte {
	return binary.NativeEndian.AppendUint16(binary.NativeEndian.AppendUint16(nil, flags), id)
}
