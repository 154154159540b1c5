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

// FoundFDB is an entry of a forwarding table as the kernel has it.
type FoundFDB struct {
	state.FDB
	Index int
	// Permanent means that a program added it; the kernel learned the others.
	Permanent bool
}

// AddFDB requests a permanent entry. It replaces an entry for the same MAC address.
func AddFDB(e state.FDB, index int) *rtnl.Message {
	m := rtnl.New(unix.RTM_NEWNEIGH, unix.NLM_F_CREATE|unix.NLM_F_REPLACE, "add", e,
		ndmsg(unix.AF_BRIDGE, index, unix.NUD_PERMANENT|unix.NUD_NOARP, unix.NTF_SELF))
	m.Attr(unix.NDA_LLADDR, e.MAC[:])
	m.Attr(unix.NDA_DST, e.Dst.AsSlice())
	return m
}

// DelFDB requests the deletion of an entry.
func DelFDB(e state.FDB, index int) *rtnl.Message {
	m := rtnl.New(unix.RTM_DELNEIGH, 0, "delete", e, ndmsg(unix.AF_BRIDGE, index, unix.NUD_PERMANENT, unix.NTF_SELF))
	m.Attr(unix.NDA_LLADDR, e.MAC[:])
	m.Attr(unix.NDA_DST, e.Dst.AsSlice())
	return m.Forgiving(unix.ENOENT, unix.ENODEV)
}

// GetFDB requests one entry.
func GetFDB(e state.FDB, index int) *rtnl.Message {
	m := rtnl.New(unix.RTM_GETNEIGH, 0, "read", e, ndmsg(unix.AF_BRIDGE, index, 0, unix.NTF_SELF)).Forgiving(unix.ENOENT,
		unix.ENODEV)
	m.Attr(unix.NDA_LLADDR, e.MAC[:])
	return m
}

// ListFDBs requests the entries of one device. An older kernel answers with those of all.
func ListFDBs(index int) *rtnl.Message {
	return rtnl.New(unix.RTM_GETNEIGH, 0, "read", rtnl.Name("forwarding table"), ndmsg(unix.AF_BRIDGE, index, 0, 0))
}

// DecodeFDB decodes RTM_NEWNEIGH of the bridge family; it ignores entries without a VTEP.
func DecodeFDB(body []byte) (FoundFDB, bool) {
	if len(body) < unix.SizeofNdMsg || body[0] != unix.AF_BRIDGE {
		return FoundFDB{}, false
	}
	f := FoundFDB{Index: int(int32(binary.NativeEndian.Uint32(body[4:])))}
	f.Permanent = binary.NativeEndian.Uint16(body[8:])&unix.NUD_PERMANENT != 0
	for kind, data := range netlink.Attrs(body[unix.SizeofNdMsg:]) {
		switch kind {
		case unix.NDA_DST:
			f.Dst, _ = netip.AddrFromSlice(data)
		case unix.NDA_LLADDR:
			if len(data) == len(f.MAC) {
				f.MAC = state.MAC(data)
			}
		}
	}
	return f, f.Dst.IsValid()
}
