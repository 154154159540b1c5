// SPDX-License-Identifier: Apache-2.0

package nft

import (
	"encoding/binary"
	"iter"

	"golang.org/x/sys/unix"
)

// batch is a row of netlink messages that travel in one write.
type batch struct {
	buf   []byte
	first uint32   // the number of the first message
	notes []string // what each message does, for errors
	start int      // where the message being written begins
}

// message begins a message of nf_tables; its attributes follow until the next message or the end.
func (b *batch) message(typ int, flags uint16, fam byte, note string) {
	b.header(uint16(typ)|unix.NFNL_SUBSYS_NFTABLES<<8, flags, fam, 0, note)
}

// boundary begins the message that opens or ends a transaction.
func (b *batch) boundary(typ, flags uint16, note string) {
	b.header(typ, flags, 0, unix.NFNL_SUBSYS_NFTABLES, note)
}

func (b *batch) header(kind, flags uint16, fam byte, resource uint16, note string) {
	b.close()
	b.start = len(b.buf)
	seq := b.first + uint32(len(b.notes))
	b.notes = append(b.notes, note)
	b.buf = binary.NativeEndian.AppendUint32(b.buf, 0)
	b.buf = binary.NativeEndian.AppendUint16(b.buf, kind)
	b.buf = binary.NativeEndian.AppendUint16(b.buf, flags|unix.NLM_F_REQUEST)
	b.buf = binary.NativeEndian.AppendUint32(b.buf, seq)
	b.buf = binary.NativeEndian.AppendUint32(b.buf, 0)
	b.buf = append(b.buf, fam, unix.NFNETLINK_V0)
	b.buf = binary.BigEndian.AppendUint16(b.buf, resource)
}

// close writes the length of the message that is open.
func (b *batch) close() {
	if len(b.buf) > b.start {
		binary.NativeEndian.PutUint32(b.buf[b.start:], uint32(len(b.buf)-b.start))
	}
}

// addFlags adds flags to the message that is open.
func (b *batch) addFlags(flags uint16) {
	at := b.buf[b.start+6:]
	binary.NativeEndian.PutUint16(at, binary.NativeEndian.Uint16(at)|flags)
}

// last is the number of the newest message.
func (b *batch) last() uint32 { return b.first + uint32(len(b.notes)) - 1 }

func (b *batch) attr(typ uint16, data []byte) {
	b.buf = binary.NativeEndian.AppendUint16(b.buf, uint16(len(data)+unix.NLA_HDRLEN))
	b.buf = binary.NativeEndian.AppendUint16(b.buf, typ)
	b.buf = append(b.buf, data...)
	b.align()
}

func (b *batch) str(typ uint16, s string) {
	b.buf = binary.NativeEndian.AppendUint16(b.buf, uint16(len(s)+1+unix.NLA_HDRLEN))
	b.buf = binary.NativeEndian.AppendUint16(b.buf, typ)
	b.buf = append(append(b.buf, s...), 0)
	b.align()
}

func (b *batch) u32(typ uint16, v uint32) {
	var data [4]byte
	binary.BigEndian.PutUint32(data[:], v)
	b.attr(typ, data[:])
}

func (b *batch) u64(typ uint16, v uint64) {
	var data [8]byte
	binary.BigEndian.PutUint64(data[:], v)
	b.attr(typ, data[:])
}

func (b *batch) align() {
	for len(b.buf)%4 != 0 {
		b.buf = append(b.buf, 0)
	}
}

// nest begins a nested attribute, end closes the one that began at mark.
func (b *batch) nest(typ uint16) (mark int) {
	mark = len(b.buf)
	b.buf = binary.NativeEndian.AppendUint16(b.buf, 0)
	b.buf = binary.NativeEndian.AppendUint16(b.buf, typ|unix.NLA_F_NESTED)
	return mark
}

func (b *batch) end(mark int) {
	binary.NativeEndian.PutUint16(b.buf[mark:], uint16(len(b.buf)-mark))
}

// attrs walks over the attributes of a message or of a nested attribute.
func attrs(b []byte) iter.Seq2[uint16, []byte] {
	return func(yield func(uint16, []byte) bool) {
		for len(b) >= unix.NLA_HDRLEN {
			size := int(binary.NativeEndian.Uint16(b))
			if size < unix.NLA_HDRLEN || size > len(b) {
				return
			}
			typ := binary.NativeEndian.Uint16(b[2:]) &^ (unix.NLA_F_NESTED | unix.NLA_F_NET_BYTEORDER)
			if !yield(typ, b[unix.NLA_HDRLEN:size]) {
				return
			}
			b = b[min(align4(size), len(b)):]
		}
	}
}

// findAttr finds one attribute.
func findAttr(b []byte, typ uint16) []byte {
	for t, v := range attrs(b) {
		if t == typ {
			return v
		}
	}
	return nil
}

func beU32(b []byte) uint32 {
	if len(b) < 4 {
		return 0
	}
	return binary.BigEndian.Uint32(b)
}

func beU64(b []byte) uint64 {
	if len(b) < 8 {
		return 0
	}
	return binary.BigEndian.Uint64(b)
}

func cstr(b []byte) string {
	for i, c := range b {
		if c == 0 {
			return string(b[:i])
		}
	}
	return string(b)
}

func align4(n int) int { return (n + 3) &^ 3 }
