// SPDX-License-Identifier: Apache-2.0

package rtnl

import (
	"encoding/binary"
	"fmt"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// Message is one request: a netlink type, flags beyond NLM_F_REQUEST, and a body built by its methods.
type Message struct {
	Type  uint16
	Flags uint16
	// Verb and About name the request in errors; About is printed only then.
	Verb  string
	About fmt.Stringer
	// Forgive are the refusals that mean "already so".
	Forgive []unix.Errno
	// Loose takes a dump that is torn each time it is tried: what changed meanwhile may be in it or not, the rest is.
	Loose bool
	body  []byte
}

// Name is an About for what has no value of its own.
type Name string

func (n Name) String() string { return string(n) }

// New begins a request with its fixed header.
func New(kind, flags uint16, verb string, about fmt.Stringer, header []byte) *Message {
	m := &Message{Type: kind, Flags: flags, Verb: verb, About: about, body: make([]byte, 0, 128)}
	m.Raw(header)
	return m
}

// Forgiving adds refusals that mean "already so".
func (m *Message) Forgiving(errnos ...unix.Errno) *Message {
	m.Forgive = append(m.Forgive, errnos...)
	return m
}

// Attr appends an attribute.
func (m *Message) Attr(kind uint16, data []byte) {
	start := m.begin(kind)
	m.body = append(m.body, data...)
	m.end(start)
}

// Uint32 appends a 32-bit attribute in the machine's order.
func (m *Message) Uint32(kind uint16, v uint32) {
	start := m.begin(kind)
	m.body = binary.NativeEndian.AppendUint32(m.body, v)
	m.end(start)
}

// Uint16 appends a 16-bit attribute in the machine's order.
func (m *Message) Uint16(kind, v uint16) {
	start := m.begin(kind)
	m.body = binary.NativeEndian.AppendUint16(m.body, v)
	m.end(start)
}

// Uint8 appends an 8-bit attribute.
func (m *Message) Uint8(kind uint16, v uint8) {
	start := m.begin(kind)
	m.body = append(m.body, v)
	m.end(start)
}

// String appends a zero-terminated string.
func (m *Message) String(kind uint16, v string) {
	start := m.begin(kind)
	m.body = append(append(m.body, v...), 0)
	m.end(start)
}

// Raw appends bytes that are no attribute, such as the header inside a peer's description.
func (m *Message) Raw(b []byte) {
	m.body = append(m.body, b...)
	m.pad()
}

// Nest appends an attribute that holds what fill appends.
func (m *Message) Nest(kind uint16, fill func()) {
	start := m.begin(kind)
	fill()
	m.end(start)
}

// Patch overwrites the beginning of the body, the fixed header that New was given.
func (m *Message) Patch(header []byte) { copy(m.body, header) }

func (m *Message) begin(kind uint16) int {
	start := len(m.body)
	m.body = append(m.body, 0, 0, 0, 0)
	binary.NativeEndian.PutUint16(m.body[start+2:], kind)
	return start
}

func (m *Message) end(start int) {
	binary.NativeEndian.PutUint16(m.body[start:], uint16(len(m.body)-start))
	m.pad()
}

func (m *Message) pad() {
	for len(m.body)%unix.NLA_ALIGNTO != 0 {
		m.body = append(m.body, 0)
	}
}

func (m *Message) append(b []byte, seq uint32, flags uint16) []byte {
	b = binary.NativeEndian.AppendUint32(b, uint32(unix.NLMSG_HDRLEN+len(m.body)))
	b = binary.NativeEndian.AppendUint16(b, m.Type)
	b = binary.NativeEndian.AppendUint16(b, m.Flags|flags|unix.NLM_F_REQUEST)
	b = binary.NativeEndian.AppendUint32(b, seq)
	b = binary.NativeEndian.AppendUint32(b, 0)
	return append(b, m.body...)
}

// asks tells by its number whether a request only reads, and is answered: rtnetlink numbers NEW, DEL, GET and SET in fours.
func (m *Message) asks() bool { return m.Type%4 == unix.RTM_GETLINK%4 }

func (m *Message) forgives(errno unix.Errno) bool { return slices.Contains(m.Forgive, errno) }

func (m *Message) what() string { return strings.TrimSpace(m.Verb + " " + m.About.String()) }

// Attrs splits a sequence of attributes and hands each to f; nested and byte-order flags are taken off the type. A
// truncated rest is left out.
func Attrs(b []byte, f func(kind uint16, data []byte)) {
	for len(b) >= unix.SizeofNlAttr {
		size := int(binary.NativeEndian.Uint16(b))
		if size < unix.SizeofNlAttr || size > len(b) {
			return
		}
		f(binary.NativeEndian.Uint16(b[2:])&^(unix.NLA_F_NESTED|unix.NLA_F_NET_BYTEORDER), b[unix.SizeofNlAttr:size])
		b = b[min(align(size), len(b)):]
	}
}

func align(n int) int { return (n + 3) &^ 3 }
