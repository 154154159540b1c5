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

// Protocol is weft's own route protocol number (rtnetlink(7), rtm_protocol): "w".
const Protocol = 0x77

// FoundRoute is a route as the kernel has it.
type FoundRoute struct {
	state.Route
	Index int
	// Nexthops is the number of next hops.
	Nexthops int
	hops     []Hop
}

// ByKernel reports whether the kernel added a route itself: connected and local ones.
func (f FoundRoute) ByKernel() bool {
	if f.Protocol == unix.RTPROT_KERNEL || f.Table == unix.RT_TABLE_LOCAL {
		return true
	}
	switch f.Type {
	case unix.RTN_UNICAST, unix.RTN_BLACKHOLE, unix.RTN_UNREACHABLE, unix.RTN_PROHIBIT, unix.RTN_THROW:
		return false
	}
	return true
}

// AddRoute requests a route over the link of that index (0: none); of a route with several next hops these are in more. It
// fails if there is one of that destination, metric and table, unless the route may coexist.
func AddRoute(r state.Route, index int, more ...Hop) *rtnl.Message {
	flags := uint16(unix.NLM_F_CREATE | unix.NLM_F_EXCL)
	if r.Coexists {
		flags = unix.NLM_F_CREATE
	}
	return routeMessage(unix.RTM_NEWROUTE, flags, "add", r, index, more)
}

// ReplaceRoute is AddRoute, but puts the route in the place of the one with its destination, metric and table, without a
// moment in which there is none.
func ReplaceRoute(r state.Route, index int, more ...Hop) *rtnl.Message {
	return routeMessage(unix.RTM_NEWROUTE, unix.NLM_F_CREATE|unix.NLM_F_REPLACE, "replace", r, index, more)
}

// DelRoute requests the deletion of a route.
func DelRoute(r state.Route, index int, more ...Hop) *rtnl.Message {
	return routeMessage(unix.RTM_DELROUTE, 0, "delete", r, index, more).Forgiving(unix.ESRCH, unix.ENODEV, unix.ENOENT)
}

// Delete requests the deletion of a route that was found: of the next hops that ByLink has left with it.
func (f FoundRoute) Delete() *rtnl.Message {
	if f.Nexthops < 2 {
		f.NextHops = nil
		return DelRoute(f.Route, f.Index)
	}
	hops := f.Hops()
	if len(hops) != f.Nexthops {
		hops = slices.DeleteFunc(slices.Clone(hops), func(h Hop) bool { return h.Index != f.Index })
	}
	return DelRoute(f.Route, f.Index, hops...)
}

// Normal sets the fields that a plan may leave unset to their defaults, for comparison with the kernel's routes.
func Normal(r state.Route) state.Route {
	r.Dst = r.Dst.Masked()
	if r.Table == 0 {
		r.Table = unix.RT_TABLE_MAIN
	}
	if r.Type == 0 {
		r.Type = unix.RTN_UNICAST
	}
	if r.Protocol == 0 {
		r.Protocol = Protocol
	}
	if r.Dst.Addr().Is6() && r.Metric == 0 {
		r.Metric = 1024 // IP6_RT_PRIO_USER
	}
	scope := state.ScopeUniverse
	switch {
	case r.Dst.Addr().Is6(): // IPv6 has no scopes
	case r.Scope != nil:
		scope = *r.Scope
	case !r.Gw.IsValid() && r.Type == unix.RTN_UNICAST:
		scope = state.ScopeLink
	}
	r.Scope = &scope
	return r
}

func routeMessage(kind, flags uint16, verb string, r state.Route, index int, hops []Hop) *rtnl.Message {
	n := Normal(r)
	h := make([]byte, unix.SizeofRtMsg)
	h[0], h[1] = family(n.Dst.Addr()), uint8(n.Dst.Bits())
	h[4] = uint8(min(n.Table, unix.RT_TABLE_COMPAT))
	h[5], h[6], h[7] = n.Protocol, uint8(*n.Scope), n.Type
	if n.OnLink {
		binary.NativeEndian.PutUint32(h[8:], unix.RTNH_F_ONLINK)
	}
	m := rtnl.New(kind, flags, verb, r, h)
	if n.Dst.Bits() > 0 {
		m.Attr(unix.RTA_DST, n.Dst.Addr().AsSlice())
	}
	switch {
	case len(hops) > 1:
		multipath(m, n, hops)
		index = 0
	case n.Gw.IsValid():
		m.Attr(via(n, n.Gw))
	}
	if index != 0 {
		m.Uint32(unix.RTA_OIF, uint32(index))
	}
	if n.Src.IsValid() {
		m.Attr(unix.RTA_PREFSRC, n.Src.AsSlice())
	}
	if n.Metric != 0 {
		m.Uint32(unix.RTA_PRIORITY, n.Metric)
	}
	m.Uint32(unix.RTA_TABLE, n.Table)
	if n.MTU != 0 || n.AdvMSS != 0 {
		m.Nest(unix.RTA_METRICS, func() {
			if n.MTU != 0 {
				m.Uint32(unix.RTAX_MTU, uint32(n.MTU))
			}
			if n.AdvMSS != 0 {
				m.Uint32(unix.RTAX_ADVMSS, uint32(n.AdvMSS))
			}
		})
	}
	return m
}

// ListRoutes requests the routes of one family, over one link and in one table unless those are 0.
func ListRoutes(fam uint8, index int, table uint32) *rtnl.Message {
	h := make([]byte, unix.SizeofRtMsg)
	h[0] = fam
	m := rtnl.New(unix.RTM_GETROUTE, 0, "read", rtnl.Name("routes"), h).Forgiving(unix.ENOENT, unix.ENODEV)
	if index != 0 {
		m.Uint32(unix.RTA_OIF, uint32(index))
	}
	if table != 0 {
		m.Uint32(unix.RTA_TABLE, table)
	}
	return m
}

// ListRoutesOf requests the routes of one family that have a protocol number and are in a table. An older kernel
// answers with more.
func ListRoutesOf(fam uint8, table uint32, protocol uint8) *rtnl.Message {
	m := ListRoutes(fam, 0, table)
	m.Patch([]byte{fam, 0, 0, 0, 0, protocol})
	return m
}

// RouteTo requests the route that packets to an address take.
func RouteTo(to netip.Addr) *rtnl.Message {
	h := make([]byte, unix.SizeofRtMsg)
	h[0], h[1] = family(to), uint8(to.BitLen())
	none := []unix.Errno{unix.ENETUNREACH, unix.EHOSTUNREACH, unix.ENONET, unix.EACCES, unix.EINVAL}
	m := rtnl.New(unix.RTM_GETROUTE, 0, "look up the route to", to, h).Forgiving(none...)
	m.Attr(unix.RTA_DST, to.AsSlice())
	return m
}

// RouteOf requests the FIB entry, not the resolved route, that the kernel chooses for the first address of a prefix.
func RouteOf(dst netip.Prefix) *rtnl.Message {
	to := dst.Masked().Addr()
	h := make([]byte, unix.SizeofRtMsg)
	h[0], h[1] = family(to), uint8(to.BitLen())
	binary.NativeEndian.PutUint32(h[8:], unix.RTM_F_FIB_MATCH)
	m := rtnl.New(unix.RTM_GETROUTE, 0, "look up the route of", dst, h)
	// the last two: a route that rejects the destination
	m.Forgiving(unix.ENETUNREACH, unix.EHOSTUNREACH, unix.EINVAL, unix.EACCES)
	m.Attr(unix.RTA_DST, to.AsSlice())
	return m
}

// DecodeRouteTo decodes the answer: the index of the link.
func DecodeRouteTo(body []byte) int {
	index := 0
	if len(body) < unix.SizeofRtMsg {
		return index
	}
	for kind, data := range netlink.Attrs(body[unix.SizeofRtMsg:]) {
		if kind == unix.RTA_OIF {
			index = int(number(data))
		}
	}
	return index
}

// RouteFor requests the route of a packet with that source (unless it is invalid) that arrives on the link of an index
// (0: that is sent here). The errors with which the kernel refuses the packet are not forgiven.
func RouteFor(from, to netip.Addr, in int) *rtnl.Message {
	h := make([]byte, unix.SizeofRtMsg)
	h[0], h[1] = family(to), uint8(to.BitLen())
	if from.IsValid() {
		h[2] = uint8(from.BitLen())
	}
	m := rtnl.New(unix.RTM_GETROUTE, 0, "look up the route to", to, h)
	m.Attr(unix.RTA_DST, to.AsSlice())
	if from.IsValid() {
		m.Attr(unix.RTA_SRC, from.AsSlice())
	}
	if in != 0 {
		m.Uint32(unix.RTA_IIF, uint32(in))
	}
	return m
}

// routeTypes are the names of route types, by number (RTN_UNSPEC and so on).
func routeTypes() []string {
	return []string{
		"unspec", "unicast", "local", "broadcast", "anycast", "multicast", "blackhole", "unreachable", "prohibit", "throw",
	}
}

// DecodeRouteLookup decodes the answer to RouteFor, and returns the index of the outgoing link; its name is left empty.
func DecodeRouteLookup(body []byte) (r state.RouteLookup, index int) {
	if len(body) < unix.SizeofRtMsg {
		return r, 0
	}
	r.Table = uint32(body[4])
	if n := int(body[7]); n < len(routeTypes()) {
		r.Type = routeTypes()[n]
	}
	for kind, data := range netlink.Attrs(body[unix.SizeofRtMsg:]) {
		switch kind {
		case unix.RTA_OIF:
			index = int(number(data))
		case unix.RTA_GATEWAY:
			r.Gateway, _ = netip.AddrFromSlice(data)
		case unix.RTA_VIA:
			if len(data) > 2 {
				r.Gateway, _ = netip.AddrFromSlice(data[2:])
			}
		case unix.RTA_PREFSRC:
			r.Source, _ = netip.AddrFromSlice(data)
		case unix.RTA_TABLE:
			r.Table = number(data)
		case unix.RTA_METRICS:
			for kind, data := range netlink.Attrs(data) {
				if kind == unix.RTAX_MTU {
					r.MTU = int(number(data))
				}
			}
		case unix.RTA_CACHEINFO:
			const expires = 8 // rta_cacheinfo.rta_expires
			r.Learned = len(data) >= expires+4 && binary.NativeEndian.Uint32(data[expires:]) != 0
		}
	}
	return r, index
}

// DecodeRoute decodes RTM_NEWROUTE; it ignores cloned routes.
func DecodeRoute(body []byte) (FoundRoute, bool) {
	if len(body) < unix.SizeofRtMsg {
		return FoundRoute{}, false
	}
	flags := binary.NativeEndian.Uint32(body[8:])
	f := FoundRoute{Nexthops: 1}
	v6, bits := body[0] == unix.AF_INET6, int(body[1])
	f.Table, f.Protocol, f.Type = uint32(body[4]), body[5], body[7]
	scope := state.Scope(body[6])
	f.Scope, f.OnLink = &scope, flags&unix.RTNH_F_ONLINK != 0
	dst := netip.IPv4Unspecified()
	if v6 {
		dst = netip.IPv6Unspecified()
	}
	for kind, data := range netlink.Attrs(body[unix.SizeofRtMsg:]) {
		switch kind {
		case unix.RTA_DST:
			dst, _ = netip.AddrFromSlice(data)
		case unix.RTA_GATEWAY:
			f.Gw, _ = netip.AddrFromSlice(data)
		case unix.RTA_VIA:
			if len(data) > 2 {
				f.Gw, _ = netip.AddrFromSlice(data[2:])
			}
		case unix.RTA_OIF:
			f.Index = int(number(data))
		case unix.RTA_PREFSRC:
			f.Src, _ = netip.AddrFromSlice(data)
		case unix.RTA_PRIORITY:
			f.Metric = number(data)
		case unix.RTA_TABLE:
			f.Table = number(data)
		case unix.RTA_METRICS:
			f.metrics(data)
		case unix.RTA_MULTIPATH:
			f.nexthops(data)
		}
	}
	f.Dst = netip.PrefixFrom(dst, bits)
	return f, flags&unix.RTM_F_CLONED == 0 && dst.IsValid()
}

func (f *FoundRoute) metrics(data []byte) {
	for kind, data := range netlink.Attrs(data) {
		switch kind {
		case unix.RTAX_MTU:
			f.MTU = int(number(data))
		case unix.RTAX_ADVMSS:
			f.AdvMSS = int(number(data))
		}
	}
}
