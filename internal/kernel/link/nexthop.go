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

// Hop is one of several next hops.
type Hop struct {
	Index int
	Gw    netip.Addr
}

// multipath adds several next hops.
func multipath(m *rtnl.Message, r state.Route, all []Hop) {
	var hops []byte
	for _, h := range all {
		kind, addr := via(r, h.Gw)
		attr := unix.SizeofRtAttr + len(addr)
		padded := (attr + unix.RTA_ALIGNTO - 1) &^ (unix.RTA_ALIGNTO - 1)
		hop := binary.NativeEndian.AppendUint16(nil, uint16(unix.SizeofRtNexthop+padded))
		flags := byte(0)
		if r.OnLink {
			flags = unix.RTNH_F_ONLINK
		}
		hop = binary.NativeEndian.AppendUint32(append(hop, flags, 0), uint32(h.Index))
		hop = binary.NativeEndian.AppendUint16(hop, uint16(attr))
		hop = append(binary.NativeEndian.AppendUint16(hop, kind), addr...)
		hops = append(append(hops, hop...), make([]byte, padded-attr)...)
	}
	m.Attr(unix.RTA_MULTIPATH, hops)
}

// via returns the attribute of a gateway: one of the other family is encoded as RTA_VIA (RFC 8950).
func via(r state.Route, gw netip.Addr) (kind uint16, data []byte) {
	if gw.Is4() == r.Dst.Addr().Is4() {
		return unix.RTA_GATEWAY, gw.AsSlice()
	}
	return unix.RTA_VIA, append(binary.NativeEndian.AppendUint16(nil, uint16(family(gw))), gw.AsSlice()...)
}

// Hops returns all next hops of what the kernel lists as one route, also those that ByLink has split off.
func (f FoundRoute) Hops() []Hop {
	if len(f.hops) == 0 {
		return []Hop{{f.Index, f.Gw}}
	}
	return f.hops
}

// Name sets the names of a route's links.
func (f *FoundRoute) Name(name func(index int) string) {
	f.Link = name(f.Index)
	for i, h := range f.hops {
		if i > 0 && i <= len(f.NextHops) && h.Index != f.Index {
			f.NextHops[i-1] = state.NextHop{Gw: h.Gw, Link: name(h.Index)}
		}
	}
}

// ByLink splits a route that the kernel lists as one: IPv6 routes of several owners that share destination and metric.
// Next hops over one link stay together.
func (f FoundRoute) ByLink() []FoundRoute {
	if len(f.hops) < 2 || !f.Dst.Addr().Is6() {
		return []FoundRoute{f}
	}
	var out []FoundRoute
	for _, hop := range f.hops {
		i := slices.IndexFunc(out, func(o FoundRoute) bool { return o.Index == hop.Index })
		if i >= 0 {
			out[i].NextHops = append(out[i].NextHops, state.NextHop{Gw: hop.Gw})
			out[i].Nexthops++
			continue
		}
		one := f
		one.Index, one.Gw, one.NextHops, one.Nexthops = hop.Index, hop.Gw, nil, 1
		out = append(out, one)
	}
	return out
}

// nexthops decodes several next hops. One over another link than the first has no gateway before Name.
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
			switch {
			case kind == unix.RTA_GATEWAY:
				gw, _ = netip.AddrFromSlice(data)
			case kind == unix.RTA_VIA && len(data) > 2:
				gw, _ = netip.AddrFromSlice(data[2:])
			}
		}
		f.hops = append(f.hops, Hop{index, gw})
		switch {
		case f.Nexthops == 0:
			f.Index, f.Gw = index, gw
		case index == f.Index:
			f.NextHops = append(f.NextHops, state.NextHop{Gw: gw})
		default:
			f.NextHops = append(f.NextHops, state.NextHop{})
		}
		f.Nexthops++
		data = data[min(len(data), (size+3)&^3):]
	}
}
