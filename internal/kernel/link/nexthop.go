// SPDX-License-Identifier: Apache-2.0

package link

import (
	"encoding/binary"
	"net/netip"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/weft-net/weft/internal/kernel/netlink"
	"github.com/weft-net/weft/internal/kernel/rtnl"
	"github.com/weft-net/weft/internal/state"
)

// nexthop is one of several next hops.
type nexthop struct {
	index int
	gw    netip.Addr
}

// multipath adds several next hops over one link.
func multipath(m *rtnl.Message, r state.Route, index int) {
	var hops []byte
	for _, gw := range append([]netip.Addr{r.Gw}, r.NextHops...) {
		addr := gw.AsSlice()
		attr := unix.SizeofRtAttr + len(addr)
		hop := binary.NativeEndian.AppendUint16(nil, uint16(unix.SizeofRtNexthop+attr))
		flags := byte(0)
		if r.OnLink {
			flags = unix.RTNH_F_ONLINK
		}
		hop = binary.NativeEndian.AppendUint32(append(hop, flags, 0), uint32(index))
		hop = binary.NativeEndian.AppendUint16(hop, uint16(attr))
		hop = binary.NativeEndian.AppendUint16(hop, unix.RTA_GATEWAY)
		hops = append(hops, append(hop, addr...)...) // the length of addresses is a multiple of four bytes
	}
	m.Attr(unix.RTA_MULTIPATH, hops)
}

// ByLink splits a route that the kernel lists as one: IPv6 routes of several owners that share destination and metric.
// Next hops over one link stay together.
func (f FoundRoute) ByLink() []FoundRoute {
	if len(f.hops) < 2 || !f.Dst.Addr().Is6() {
		return []FoundRoute{f}
	}
	var out []FoundRoute
	for _, hop := range f.hops {
		i := slices.IndexFunc(out, func(o FoundRoute) bool { return o.Index == hop.index })
		if i >= 0 {
			out[i].NextHops = append(out[i].NextHops, hop.gw)
			out[i].Nexthops++
			continue
		}
		one := f
		one.Index, one.Gw, one.NextHops, one.Nexthops, one.hops = hop.index, hop.gw, nil, 1, nil
		out = append(out, one)
	}
	return out
}

// nexthops decodes several next hops; a plan cannot contain one over another link than the first.
func (f *FoundRoute) nexthops(data []byte) {
	f.Nexthops = 0
	for len(data) >= unix.SizeofRtNexthop {
		size := int(binary.NativeEndian.Uint16(data))
		if size < unix.SizeofRtNexthop || size > len(data) {
			return
		}
		index := int(binary.NativeEndian.Uint32(data[4:]))
		var gw netip.Addr
		for kind, data := range netlink.Attrs(data[unix.SizeofRtNexthop:size]) {
			if kind == unix.RTA_GATEWAY {
				gw, _ = netip.AddrFromSlice(data)
			}
		}
		f.hops = append(f.hops, nexthop{index, gw})
		switch {
		case f.Nexthops == 0:
			f.Index, f.Gw = index, gw
		case index == f.Index:
			f.NextHops = append(f.NextHops, gw)
		default:
			f.NextHops = append(f.NextHops, netip.Addr{})
		}
		f.Nexthops++
		data = data[min(len(data), (size+3)&^3):]
	}
}
