// SPDX-License-Identifier: Apache-2.0

package netlink

import (
	"encoding/binary"
)

// Encoder appends attributes to a buffer. The zero Encoder is empty and ready for use.
type Encoder struct{ buf []byte }

// NewEncoder returns an Encoder with a capacity of size bytes.
func NewEncoder(size int) Encoder { return Encoder{make([]byte, 0, size)} }

// Bytes returns the bytes written so far.
func (e *Encoder) Bytes() []byte { return e.buf }

// Size returns the number of bytes written so far.
func (e *Encoder) Size() int { return len(e.buf) }

// Begin begins an attribute whose content follows; End, with the mark that Begin returned, ends it. The kind is written
// unchanged: netfilter requires unix.NLA_F_NESTED in it for an attribute that contains others, rtnetlink does not.
func (e *Encoder) Begin(kind uint16) (mark int) {
	mark = len(e.buf)
	e.buf = append(e.buf, 0, 0, 0, 0)
	binary.NativeEndian.PutUint16(e.buf[mark+2:], kind)
	return mark
}

// End ends the attribute that began at mark, and writes its length.
func (e *Encoder) End(mark int) {
	binary.NativeEndian.PutUint16(e.buf[mark:], uint16(len(e.buf)-mark))
	e.pad()
}

// Nest appends an attribute whose content fill appends.
func (e *Encoder) Nest(kind uint16, fill func()) {
	mark := e.Begin(kind)
	fill()
	e.End(mark)
}

// Attr appends an attribute.
func (e *Encoder) Attr(kind uint16, data []byte) {
	mark := e.Begin(kind)
	e.buf = append(e.buf, data...)
	e.End(mark)
}

// String appends a zero-terminated string.
func (e *Encoder) String(kind uint16, v string) {
	mark := e.Begin(kind)
	e.buf = append(append(e.buf, v...), 0)
	e.End(mark)
}

// Uint8 appends an 8-bit number.
func (e *Encoder) Uint8(kind uint16, v uint8) {
	mark := e.Begin(kind)
	e.buf = append(e.buf, v)
	e.End(mark)
}

// Uint16 appends a 16-bit number in the host's byte order.
func (e *Encoder) Uint16(kind, v uint16) {
	mark := e.Begin(kind)
	e.buf = binary.NativeEndian.AppendUint16(e.buf, v)
	e.End(mark)
}

// Uint32 appends a 32-bit number in the host's byte order.
func (e *Encoder) Uint32(kind uint16, v uint32) {
	mark := e.Begin(kind)
	e.buf = binary.NativeEndian.AppendUint32(e.buf, v)
	e.End(mark)
}

// BE16 appends a 16-bit number in network byte order.
func (e *Encoder) BE16(kind, v uint16) {
	mark := e.Begin(kind)
	e.buf = binary.BigEndian.AppendUint16(e.buf, v)
	e.End(mark)
}

// BE32 appends a 32-bit number in network byte order.
func (e *Encoder) BE32(kind uint16, v uint32) {
	mark := e.Begin(kind)
	e.buf = binary.BigEndian.AppendUint32(e.buf, v)
	e.End(mark)
}

// BE64 appends a 64-bit number in network byte order.
func (e *Encoder) BE64(kind uint16, v uint64) {
	mark := e.Begin(kind)
	e.buf = binary.BigEndian.AppendUint64(e.buf, v)
	e.End(mark)
}

// Raw appends bytes that are not an attribute, such as a fixed header.
func (e *Encoder) Raw(b []byte) {
	e.buf = append(e.buf, b...)
	e.pad()
}

// Patch overwrites bytes that were written, from offset at on.
func (e *Encoder) Patch(at int, b []byte) { copy(e.buf[at:], b) }

func (e *Encoder) pad() {
	for len(e.buf)%4 != 0 {
		e.buf = append(e.buf, 0)
	}
}
