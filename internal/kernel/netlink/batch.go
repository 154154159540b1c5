// SPDX-License-Identifier: Apache-2.0

package netlink

import (
	"encoding/binary"

	"golang.org/x/sys/unix"
)

// Batch is a sequence of messages that are sent in one write. Attributes are appended to the last message. Messages
// have consecutive sequence numbers, starting at 0 in the zero Batch.
type Batch struct {
	Encoder
	first, count uint32
	start        int // of the message that is open
}

// Reset empties the batch, whose buffer is reused, and numbers its messages from first on.
func (b *Batch) Reset(first uint32) { b.buf, b.first, b.count, b.start = b.buf[:0], first, 0, 0 }

// Message begins a message; flags are those beyond NLM_F_REQUEST. Its fixed header and its attributes follow.
func (b *Batch) Message(kind, flags uint16) {
	b.Close()
	b.start = len(b.buf)
	b.buf = b.header(b.buf, 0, kind, flags)
	b.count++
}

// Add appends a complete message.
func (b *Batch) Add(kind, flags uint16, body []byte) {
	b.Close()
	b.start = len(b.buf)
	b.buf = append(b.header(b.buf, unix.NLMSG_HDRLEN+len(body), kind, flags), body...)
	b.count++
}

func (b *Batch) header(buf []byte, size int, kind, flags uint16) []byte {
	buf = binary.NativeEndian.AppendUint32(buf, uint32(size))
	buf = binary.NativeEndian.AppendUint16(buf, kind)
	buf = binary.NativeEndian.AppendUint16(buf, flags|unix.NLM_F_REQUEST)
	buf = binary.NativeEndian.AppendUint32(buf, b.first+b.count)
	return binary.NativeEndian.AppendUint32(buf, 0)
}

// Netfilter begins an nfnetlink message, with its fixed header.
func (b *Batch) Netfilter(kind, flags uint16, family, version byte, resource uint16) {
	b.Message(kind, flags)
	b.buf = binary.BigEndian.AppendUint16(append(b.buf, family, version), resource)
}

// Close writes the length of the message that is open.
func (b *Batch) Close() {
	if len(b.buf) > b.start {
		binary.NativeEndian.PutUint32(b.buf[b.start:], uint32(len(b.buf)-b.start))
	}
}

// AddFlags adds flags to the message that is open.
func (b *Batch) AddFlags(flags uint16) { b.addFlags(b.start, flags) }

// AddFlagsTo adds flags to the i-th message, which must not be the last one.
func (b *Batch) AddFlagsTo(i int, flags uint16) {
	start := 0
	for range i {
		start += Align(int(binary.NativeEndian.Uint32(b.buf[start:])))
	}
	b.addFlags(start, flags)
}

func (b *Batch) addFlags(start int, flags uint16) {
	at := b.buf[start+6:]
	binary.NativeEndian.PutUint16(at, binary.NativeEndian.Uint16(at)|flags)
}

// Count returns the number of messages.
func (b *Batch) Count() int { return int(b.count) }

// First returns the sequence number of the first message.
func (b *Batch) First() uint32 { return b.first }

// Last returns the sequence number of the last message.
func (b *Batch) Last() uint32 { return b.first + b.count - 1 }

// Index returns the index of the message that an answer belongs to.
func (b *Batch) Index(a Answer) (i int, ok bool) {
	i = int(a.Seq - b.first)
	return i, i >= 0 && i < int(b.count)
}
