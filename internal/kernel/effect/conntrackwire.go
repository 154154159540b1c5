// SPDX-License-Identifier: Apache-2.0

package effect

import (
	"encoding/binary"
	"iter"
	"net/netip"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/weft-net/weft/internal/state"
)

// request is a row of messages to ctnetlink.
type request struct {
	buf   []byte
	start int
}

func (r *request) begin(typ, flags uint16, family byte, seq uint32) {
	r.close()
	r.start = len(r.buf)
	r.buf = binary.NativeEndian.AppendUint32(r.buf, 0)
	r.buf = binary.NativeEndian.AppendUint16(r.buf, ctSubsystem|typ)
	r.buf = binary.NativeEndian.AppendUint16(r.buf, unix.NLM_F_REQUEST|flags)
	r.buf = binary.NativeEndian.AppendUint32(r.buf, seq)
	r.buf = binary.NativeEndian.AppendUint32(r.buf, 0)
	// With version 0 the kernel looks at no family when it flushes.
	const version = 1
	r.buf = append(r.buf, family, version, 0, 0)
}

// close writes the length of the message that is open.
func (r *request) close() {
	if len(r.buf) > r.start {
		binary.NativeEndian.PutUint32(r.buf[r.start:], uint32(len(r.buf)-r.start))
	}
}

func (r *request) attr(typ uint16, v []byte) {
	r.buf = binary.NativeEndian.AppendUint16(r.buf, uint16(4+len(v)))
	r.buf = binary.NativeEndian.AppendUint16(r.buf, typ)
	r.buf = append(r.buf, v...)
	for len(r.buf)%4 != 0 {
		r.buf = append(r.buf, 0)
	}
}

func (r *request) nest(typ uint16, fill func()) {
	at := len(r.buf)
	r.attr(typ|unix.NLA_F_NESTED, nil)
	fill()
	binary.NativeEndian.PutUint16(r.buf[at:], uint16(len(r.buf)-at))
}

// filter writes what a flow matches. The tuple that it is about is always there: a kernel that knows no filters then takes
// the message for the deletion of one connection, and refuses it because the tuple is not whole.
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
				r.nest(ctTupleIP, func() { r.attr(dst, f.Dst.AsSlice()) })
			}
			if f.Proto != "" {
				r.nest(ctTupleProto, func() {
					r.attr(ctProtoNum, []byte{protoNumber(f.Proto)})
					if f.Port != 0 {
						r.attr(ctProtoDstPort, binary.BigEndian.AppendUint16(nil, f.Port))
					}
				})
			}
		})
	}
	if reply != 0 {
		r.nest(ctTupleReply, func() { r.nest(ctTupleIP, func() { r.attr(src, f.To.AsSlice()) }) })
	}
	r.filterFlags(orig, reply)
}

// filterFlags says which parts of the tuples a filter looks at.
func (r *request) filterFlags(orig, reply uint32) {
	r.nest(ctFilter, func() {
		r.attr(ctFilterOrig, binary.NativeEndian.AppendUint32(nil, orig))
		r.attr(ctFilterReply, binary.NativeEndian.AppendUint32(nil, reply))
	})
}

// again names a connection as the kernel did.
func (r *request) again(c connection) {
	r.attr(ctTupleOrig|unix.NLA_F_NESTED, c.orig)
	if c.zone != nil {
		r.attr(ctZone, c.zone)
	}
	if c.id != nil {
		r.attr(ctID, c.id)
	}
}

// parseConnection reads one tracked connection, of whichever family it is. It is of the message's bytes: who keeps it clones it.
func parseConnection(body []byte) connection {
	var c connection
	for typ, v := range attrs(body) {
		switch typ {
		case ctTupleOrig:
			c.orig = v
			proto := find(v, ctTupleProto)
			if n := find(proto, ctProtoNum); len(n) == 1 {
				c.proto = n[0]
			}
			if p := find(proto, ctProtoDstPort); len(p) == 2 {
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
	if c.v6 = find(find(c.orig, ctTupleIP), ctIP6Src) != nil; c.v6 {
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
	a, _ := netip.AddrFromSlice(find(find(tuple, ctTupleIP), typ))
	return a
}

func find(b []byte, typ uint16) []byte {
	for t, v := range attrs(b) {
		if t == typ {
			return v
		}
	}
	return nil
}

// attrs are the attributes in b, as far as they are whole.
func attrs(b []byte) iter.Seq2[uint16, []byte] {
	return func(yield func(uint16, []byte) bool) {
		for len(b) >= 4 {
			size, typ := int(binary.NativeEndian.Uint16(b)), binary.NativeEndian.Uint16(b[2:])
			if size < 4 || size > len(b) || !yield(typ&^(unix.NLA_F_NESTED|unix.NLA_F_NET_BYTEORDER), b[4:size]) {
				return
			}
			b = b[min((size+3)&^3, len(b)):]
		}
	}
}
