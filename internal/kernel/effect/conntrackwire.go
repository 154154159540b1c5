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

// request is a batch of ctnetlink messages.
type request struct{ netlink.Batch }

// begin begins a message.
func (r *request) begin(typ, flags uint16, family byte) {
	// With version 0 the kernel ignores the family when it flushes.
	const version = 1
	r.Netfilter(ctSubsystem|typ, flags, family, version, 0)
}

func (r *request) nest(typ uint16, fill func()) { r.Nest(typ|unix.NLA_F_NESTED, fill) }

// filter adds a flow's filter. It always contains the tuple that is compared: a kernel without filters then takes the
// message for the deletion of one entry, and refuses it because the tuple is incomplete.
func (r *request) filter(f state.Flow) {
	var orig, reply uint32
	if f.ReplySrc.IsValid() {
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
		r.nest(ctTupleReply, func() { r.nest(ctTupleIP, func() { r.Attr(src, f.ReplySrc.AsSlice()) }) })
	}
	r.filterFlags(orig, reply)
}

// filterFlags adds the parts of the tuples that a filter compares.
func (r *request) filterFlags(orig, reply uint32) {
	r.nest(ctFilter, func() {
		r.Uint32(ctFilterOrig, orig)
		r.Uint32(ctFilterReply, reply)
	})
}

// again identifies an entry as the kernel sent it.
func (r *request) again(c connection) {
	r.Attr(ctTupleOrig|unix.NLA_F_NESTED, c.orig)
	if c.zone != nil {
		r.Attr(ctZone, c.zone)
	}
	if c.id != nil {
		r.Attr(ctID, c.id)
	}
}

// parseConnection decodes one conntrack entry of either family. It references the message's bytes: a caller that keeps
// it must clone it.
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

// clone returns a copy of the connection that does not reference the message.
func (c connection) clone() connection {
	c.orig, c.reply, c.id, c.zone = slices.Clone(c.orig), slices.Clone(c.reply), slices.Clone(c.id), slices.Clone(c.zone)
	return c
}

func address(tuple []byte, typ uint16) netip.Addr {
	a, _ := netip.AddrFromSlice(netlink.Find(netlink.Find(tuple, ctTupleIP), typ))
	return a
}
