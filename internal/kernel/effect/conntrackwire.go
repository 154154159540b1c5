// SPDX-License-Identifier: Apache-2.0

package effect

import (
	"encoding/binary"
	"net/netip"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/weft-net/weft/internal/kernel/netlink"
	"github.com/weft-net/weft/internal/state"
)

// request is messages to ctnetlink that travel in one write.
type request struct{ netlink.Batch }

// begin begins a message.
func (r *request) begin(typ, flags uint16, family byte) {
	// With version 0 the kernel looks at no family when it flushes.
	const version = 1
	r.Netfilter(ctSubsystem|typ, flags, family, version, 0)
}

func (r *request) nest(typ uint16, fill func()) { r.Nest(typ|unix.NLA_F_NESTED, fill) }

// filter writes what a flow matches. The tuple that it is about is always there: a kernel that knows no filters then
// takes the message for the deletion of one connection, and refuses it because the tuple is not whole.
func (r *request) filter(f state.Flow) {
	var orig, reply uint32
	if f.To.IsValid() {
		reply |= partSrc
	}
	if f.Dst.IsValid() {
		orig |= partDst
	}
	if f.Proto != "" {
		orig |= partProto
	}
	if f.Port != 0 {
		orig |= partDstPort
	}
	src, dst := uint16(ctIP4Src), uint16(ctIP4Dst)
	if f.IPv6 {
		src, dst = ctIP6Src, ctIP6Dst
	}
	if orig != 0 {
		r.nest(ctTupleOrig, func() {
			if f.Dst.IsValid() {
				r.nest(ctTupleIP, func() { r.Attr(dst, f.Dst.AsSlice()) })
			}
			if f.Proto != "" {
				r.nest(ctTupleProto, func() {
					r.Uint8(ctProtoNum, protoNumber(f.Proto))
					if f.Port != 0 {
						r.BE16(ctProtoDstPort, f.Port)
					}
				})
			}
		})
	}
	if reply != 0 {
		r.nest(ctTupleReply, func() { r.nest(ctTupleIP, func() { r.Attr(src, f.To.AsSlice()) }) })
	}
	r.filterFlags(orig, reply)
}

// filterFlags says which parts of the tuples a filter looks at.
func (r *request) filterFlags(orig, reply uint32) {
	r.nest(ctFilter, func() {
		r.Uint32(ctFilterOrig, orig)
		r.Uint32(ctFilterReply, reply)
	})
}

// again names a connection as the kernel did.
func (r *request) again(c connection) {
	r.Attr(ctTupleOrig|unix.NLA_F_NESTED, c.orig)
	if c.zone != nil {
		r.Attr(ctZone, c.zone)
	}
	if c.id != nil {
		r.Attr(ctID, c.id)
	}
}

// parseConnection reads one tracked connection, of whichever family it is. It is of the message's bytes: who keeps it
// clones it.
func parseConnection(body []byte) connection {
	var c connection
	for typ, v := range netlink.Attrs(body) {
		switch typ {
		case ctTupleOrig:
			c.orig = v
			proto := netlink.Find(v, ctTupleProto)
			if n := netlink.Find(proto, ctProtoNum); len(n) == 1 {
				c.proto = n[0]
			}
			if p := netlink.Find(proto, ctProtoDstPort); len(p) == 2 {
				c.port = binary.BigEndian.Uint16(p)
			}
		case ctTupleReply:
			c.reply = v
		case ctID:
			c.id = v
		case ctZone:
			c.zone = v
		}
	}
	src, dst := uint16(ctIP4Src), uint16(ctIP4Dst)
	if c.v6 = netlink.Find(netlink.Find(c.orig, ctTupleIP), ctIP6Src) != nil; c.v6 {
		src, dst = ctIP6Src, ctIP6Dst
	}
	c.dst, c.to = address(c.orig, dst), address(c.reply, src)
	return c
}

// clone is the connection in bytes of its own.
func (c connection) clone() connection {
	c.orig, c.reply, c.id, c.zone = slices.Clone(c.orig), slices.Clone(c.reply), slices.Clone(c.id), slices.Clone(c.zone)
	return c
}

func address(tuple []byte, typ uint16) netip.Addr {
	a, _ := netip.AddrFromSlice(netlink.Find(netlink.Find(tuple, ctTupleIP), typ))
	return a
}
