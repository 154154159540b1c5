// SPDX-License-Identifier: Apache-2.0

package watch

import (
	"encoding/binary"
	"net/netip"

	"golang.org/x/sys/unix"

	"github.com/weft-net/weft/internal/kernel/netlink"
)

// takeNeigh decodes a neighbor or a forwarding entry: struct ndmsg and the attributes.
func (s *Event) takeNeigh(data []byte, name func(index int) string) {
	s.Link = name(int(int32(binary.NativeEndian.Uint32(data[4:]))))
	s.Bridge = data[0] == unix.AF_BRIDGE
	s.Permanent = binary.NativeEndian.Uint16(data[8:])&unix.NUD_PERMANENT != 0
	for kind, data := range netlink.Attrs(data[unix.SizeofNdMsg:]) {
		switch {
		case kind == unix.NDA_DST:
			s.Addr, _ = netip.AddrFromSlice(data)
		case kind == unix.NDA_LLADDR && len(data) == len(s.MAC):
			s.MAC = [6]byte(data)
		}
	}
}

// takeRoute decodes a route: struct rtmsg and the attributes. It looks up the link's name only for a route with a
// metric.
func (s *Event) takeRoute(data []byte, name func(index int) string) {
	dst, index := netip.IPv4Unspecified(), 0
	if data[0] == unix.AF_INET6 {
		dst = netip.IPv6Unspecified()
	}
	for kind, value := range netlink.Attrs(data[unix.SizeofRtMsg:]) {
		switch {
		case kind == unix.RTA_DST:
			dst, _ = netip.AddrFromSlice(value)
		case kind == unix.RTA_GATEWAY:
			s.Gw, _ = netip.AddrFromSlice(value)
		case kind == unix.RTA_MULTIPATH && len(value) >= unix.SizeofRtNexthop: // the first of several stands for all
			index = int(binary.NativeEndian.Uint32(value[4:]))
			first := value[unix.SizeofRtNexthop:max(unix.SizeofRtNexthop, min(len(value), int(binary.NativeEndian.Uint16(value))))]
			s.Gw, _ = netip.AddrFromSlice(netlink.Find(first, unix.RTA_GATEWAY))
		case kind == unix.RTA_OIF && len(value) == 4:
			index = int(binary.NativeEndian.Uint32(value))
		case kind == unix.RTA_PRIORITY && len(value) == 4:
			s.Metric = binary.NativeEndian.Uint32(value)
		}
	}
	s.Dst = netip.PrefixFrom(dst, int(data[1]))
	if index != 0 && s.Metric != 0 {
		s.Link = name(index)
	}
}
