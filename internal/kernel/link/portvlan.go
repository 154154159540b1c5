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
	getVLAN        = 114 // RTM_GETVLAN, Linux 5.6
	brVLANMsg      = 8   // sizeof(struct br_vlan_msg)
	vlanEntry      = 1   // BRIDGE_VLANDB_ENTRY
	vlanEntryInfo  = 1   // BRIDGE_VLANDB_ENTRY_INFO
	vlanEntryRange = 2   // BRIDGE_VLANDB_ENTRY_RANGE
	bridgeVLANInfo = 2   // IFLA_BRIDGE_VLAN_INFO

	vlanPVID, vlanUntagged, vlanBegin, vlanEnd = 1 << 1, 1 << 2, 1 << 3, 1 << 4
)

// LastVLAN is the highest VLAN number.
const LastVLAN = 4094

// ListVLANs requests the VLANs of a bridge port, or of all ports when index is 0.
func ListVLANs(index int) *rtnl.Message {
	header := make([]byte, brVLANMsg)
	header[0] = unix.AF_BRIDGE
	binary.NativeEndian.PutUint32(header[4:], uint32(index))
	return rtnl.New(getVLAN, 0, "read VLANs of link", rtnl.Name(strconv.Itoa(index)), header)
}

// DecodeVLANs decodes RTM_NEWVLAN: some VLANs of one port.
func DecodeVLANs(body []byte) (index int, ranges []state.VLANRange) {
	if len(body) < brVLANMsg {
		return 0, nil
	}
	for kind, data := range netlink.Attrs(body[brVLANMsg:]) {
		if kind != vlanEntry {
			continue
		}
		var r state.VLANRange
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
		if r.First > 0 && r.Last <= LastVLAN {
			ranges = append(ranges, r)
		}
	}
	return int(int32(binary.NativeEndian.Uint32(body[4:]))), ranges
}

// AddVLANs requests VLANs on a bridge port. The flags of existing ones are changed to those of the range.
func AddVLANs(index int, name string, ranges []state.VLANRange) *rtnl.Message {
	return portVLANs(unix.RTM_SETLINK, "add VLANs to port", index, name, ranges)
}

// DelVLANs requests the deletion of VLANs on a bridge port; missing ones are no error to the kernel.
func DelVLANs(index int, name string, ranges []state.VLANRange) *rtnl.Message {
	return portVLANs(unix.RTM_DELLINK, "delete VLANs of port", index, name, ranges)
}

func portVLANs(kind uint16, verb string, index int, name string, ranges []state.VLANRange) *rtnl.Message {
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
				m.Attr(bridgeVLANInfo, vlanInfo(flags, r.First))
				continue
			}
			m.Attr(bridgeVLANInfo, vlanInfo(flags|vlanBegin, r.First))
			m.Attr(bridgeVLANInfo, vlanInfo(flags|vlanEnd, r.Last))
		}
	})
	return m
}

// vlanInfo is struct bridge_vlan_info.
func vlanInfo(flags, id uint16) []byte {
	return binary.NativeEndian.AppendUint16(binary.NativeEndian.AppendUint16(nil, flags), id)
}
