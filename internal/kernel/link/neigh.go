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

// FoundNeigh is a neighbor entry as the kernel has it.
type FoundNeigh struct {
	state.Neigh
	Index int
	// Permanent means that a program added it; the kernel learned the others.
	Permanent bool
	// Known means that the MAC address is valid (NUD_VALID).
	Known bool
}

func ndmsg(fam uint8, index int, st uint16, flags uint8) []byte {
	b := make([]byte, unix.SizeofNdMsg)
	b[0] = fam
	binary.NativeEndian.PutUint32(b[4:], uint32(index))
	binary.NativeEndian.PutUint16(b[8:], st)
	b[10] = flags
	return b
}

// AddNeigh requests a permanent entry, or a proxy entry.
func AddNeigh(n state.Neigh, index int) *rtnl.Message {
	return neighMessage(unix.RTM_NEWNEIGH, unix.NLM_F_CREATE|unix.NLM_F_REPLACE, "add", n, index)
}

// DelNeigh requests the deletion of an entry.
func DelNeigh(n state.Neigh, index int) *rtnl.Message {
	return neighMessage(unix.RTM_DELNEIGH, 0, "delete", n, index).Forgiving(unix.ENOENT, unix.ENODEV)
}

func neighMessage(kind, flags uint16, verb string, n state.Neigh, index int) *rtnl.Message {
	ntf := uint8(0)
	if n.Proxy {
		ntf = unix.NTF_PROXY
	}
	m := rtnl.New(kind, flags, verb, n, ndmsg(family(n.IP), index, unix.NUD_PERMANENT, ntf))
	m.Attr(unix.NDA_DST, n.IP.AsSlice())
	if !n.MAC.IsZero() {
		m.Attr(unix.NDA_LLADDR, n.MAC[:])
	}
	return m
}

// GetNeigh requests one entry.
func GetNeigh(n state.Neigh, index int) *rtnl.Message {
	ntf := uint8(0)
	if n.Proxy {
		ntf = unix.NTF_PROXY
	}
	m := rtnl.New(unix.RTM_GETNEIGH, 0, "read", n, ndmsg(family(n.IP), index, 0, ntf)).Forgiving(unix.ENOENT, unix.ENODEV)
	m.Attr(unix.NDA_DST, n.IP.AsSlice())
	return m
}

// ResolveNeigh makes the kernel resolve a neighbor on the wire.
func ResolveNeigh(n state.Neigh, index int) *rtnl.Message {
	m := rtnl.New(unix.RTM_NEWNEIGH, unix.NLM_F_CREATE, "ask for", n,
		ndmsg(family(n.IP), index, unix.NUD_NONE, unix.NTF_USE))
	m.Attr(unix.NDA_DST, n.IP.AsSlice())
	return m
}

// ListNeighs requests the entries of one link, or of all when index is 0; proxy entries are a separate table. An older
// kernel answers with those of all.
func ListNeighs(index int, proxy bool) *rtnl.Message {
	ntf := uint8(0)
	if proxy {
		ntf = unix.NTF_PROXY
	}
	m := rtnl.New(unix.RTM_GETNEIGH, 0, "read", rtnl.Name("neighbors"), ndmsg(0, 0, 0, ntf)).Forgiving(unix.ENODEV)
	if index != 0 {
		m.Uint32(unix.NDA_IFINDEX, uint32(index))
	}
	return m
}

// DecodeNeigh decodes RTM_NEWNEIGH of the IP families.
func DecodeNeigh(body []byte) (FoundNeigh, bool) {
	if len(body) < unix.SizeofNdMsg || body[0] != unix.AF_INET && body[0] != unix.AF_INET6 {
		return FoundNeigh{}, false
	}
	f := FoundNeigh{Index: int(int32(binary.NativeEndian.Uint32(body[4:])))}
	f.Permanent = binary.NativeEndian.Uint16(body[8:])&unix.NUD_PERMANENT != 0
	const valid = unix.NUD_PERMANENT | unix.NUD_NOARP | unix.NUD_REACHABLE | unix.NUD_PROBE | unix.NUD_STALE |
		unix.NUD_DELAY
	f.Known = binary.NativeEndian.Uint16(body[8:])&valid != 0
	f.Proxy = body[10]&unix.NTF_PROXY != 0
	for kind, data := range netlink.Attrs(body[unix.SizeofNdMsg:]) {
		switch kind {
		case unix.NDA_DST:
			f.IP, _ = netip.AddrFromSlice(data)
		case unix.NDA_LLADDR:
			if len(data) == len(f.MAC) {
				f.MAC = state.MAC(data)
			}
		}
	}
	return f, f.IP.IsValid() && !f.IP.IsMulticast()
}

// NeighState returns the name of the state in RTM_NEWNEIGH.
func NeighState(body []byte) string {
	if len(body) < unix.SizeofNdMsg {
		return "none"
	}
	bits := binary.NativeEndian.Uint16(body[8:])
	for _, s := range []struct {
		bit  uint16
		name string
	}{
		{unix.NUD_PERMANENT, "permanent"},
		{unix.NUD_NOARP, "noarp"},
		{unix.NUD_REACHABLE, "reachable"},
		{unix.NUD_STALE, "stale"},
		{unix.NUD_DELAY, "delay"},
		{unix.NUD_PROBE, "probe"},
		{unix.NUD_FAILED, "failed"},
		{unix.NUD_INCOMPLETE, "incomplete"},
	} {
		if bits&s.bit != 0 {
			return s.name
		}
	}
	return "none"
}
