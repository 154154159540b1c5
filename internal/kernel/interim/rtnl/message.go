// SPDX-License-Identifier: Apache-2.0

package rtnl

import (
	"encoding/binary"

	"golang.org/x/sys/unix"
)

// Message is one request: a netlink type, flags beyond NLM_F_REQUEST, and a body built by its methods.
type Message struct {
	Type  uint16
	Flags uint16
	// What names the request in errors.
	What string
	body []byte
}

// New begins a request with its fixed header.
func New(kind uint16, flags uint16, what string, header []byte) *Message {
	return &Message{Type: kind, Flags: flags, What: what, body: header}
}

// Attr appends an attribute.
func (m *Message) Attr(kind uint16, data []byte) {
	start := m.begin(kind)
	m.body = append(m.body, data...)
	m.end(start)
}

// Uint32 appends a 32-bit attribute in the machine's order.
func (m *Message) Uint32(kind uint16, v uint32) {
	m.Attr(kind, binary.NativeEndian.AppendUint32(nil, v))
}

// Uint16 appends a 16-bit attribute in the machine's order.
func (m *Message) Uint16(kind uint16, v uint16) {
	m.Attr(kind, binary.NativeEndian.AppendUint16(nil, v))
}

// Uint8 appends an 8-bit attribute.
func (m *Message) Uint8(kind uint16, v uint8) { m.Attr(kind, []byte{v}) }

// String appends a zero-terminated string.
func (m *Message) String(kind uint16, v string) { m.Attr(kind, append([]byte(v), 0)) }

// Raw appends bytes that are no attribute, such as the header inside a peer's description.
func (m *Message) Raw(b []byte) { m.body = append(m.body, b...) }

// Nest appends an attribute that holds what fill appends.
func (m *Message) Nest(kind uint16, fill func()) {
	start := m.begin(kind)
	fill()
	m.end(start)
}

func (m *Message) begin(kind uint16) int {
	start := len(m.body)
	m.body = append(m.body, 0, 0, 0, 0)
	binary.NativeEndian.PutUint16(m.body[start+2:], kind)
	return start
}

func (m *Message) end(start int) {
	binary.NativeEndian.PutUint16(m.body[start:], uint16(len(m.body)-start))
	for len(m.body)%unix.NLA_ALIGNTO != 0 {
		m.body = append(m.body, 0)
	}
}

func (m *Message) append(b []byte, seq uint32, flags uint16) []byte {
	b = binary.NativeEndian.AppendUint32(b, uint32(unix.SizeofNlMsghdr+len(m.body)))
	b = binary.NativeEndian.AppendUint16(b, m.Type)
	b = binary.NativeEndian.AppendUint16(b, m.Flags|flags|unix.NLM_F_REQUEST)
	b = binary.NativeEndian.AppendUint32(b, seq)
	b = binary.NativeEndian.AppendUint32(b, 0)
	b = append(b, m.body...)
	for len(b)%unix.NLMSG_ALIGNTO != 0 {
		b = append(b, 0)
	}
	return b
}

// Attrs splits a sequence of attributes and hands each to f; nested and byte-order flags are taken off the type. A
// truncated rest is left out.
func Attrs(b []byte, f func(kind uint16, data []byte)) {
	for len(b) >= unix.SizeofNlAttr {
		size := int(binary.NativeEndian.Uint16(b))
		if size < unix.SizeofNlAttr || size > len(b) {
			return
		}
		f(binary.NativeEndian.Uint16(b[2:])&^(unix.NLA_F_NESTED|unix.NLA_F_NET_BYTEORDER), b[unix.SizeofNlAttr:size])
		b = b[min((size+3)&^3, len(b)):]
	}
}

// Patch overwrites the beginning of the body, the fixed header that New was given.
func (m *Message) Patch(header []byte) { copy(m.body, header) }
