// SPDX-License-Identifier: Apache-2.0

package netlink

import (
	"bytes"
	"encoding/binary"
	"iter"

	"golang.org/x/sys/unix"
)

// Align rounds a length up to the beginning of the next attribute or message.
func Align(n int) int { return (n + 3) &^ 3 }

// Attrs iterates over the attributes in b, by their types without the flags for nesting and byte order. It ignores a
// truncated rest.
func Attrs(b []byte) iter.Seq2[uint16, []byte] {
	return func(yield func(uint16, []byte) bool) { attrs(b, yield) }
}

// attrs is a separate function, and never inlined, so that Attrs always is: then neither the iterator nor the loop's
// body is allocated.
//
//go:noinline
func attrs(b []byte, yield func(uint16, []byte) bool) {
	for len(b) >= unix.NLA_HDRLEN {
		size := int(binary.NativeEndian.Uint16(b))
		if size < unix.NLA_HDRLEN || size > len(b) {
			return
		}
		kind := binary.NativeEndian.Uint16(b[2:]) &^ (unix.NLA_F_NESTED | unix.NLA_F_NET_BYTEORDER)
		if !yield(kind, b[unix.NLA_HDRLEN:size]) {
			return
		}
		b = b[min(Align(size), len(b)):]
	}
}

// Find returns the first attribute of a type, nil if there is none.
func Find(b []byte, kind uint16) []byte {
	for k, v := range Attrs(b) {
		if k == kind {
			return v
		}
	}
	return nil
}

// BE16 returns a number in network byte order, 0 if b is too short.
func BE16(b []byte) uint16 {
	if len(b) < 2 {
		return 0
	}
	return binary.BigEndian.Uint16(b)
}

// BE32 returns a number in network byte order, 0 if b is too short.
func BE32(b []byte) uint32 {
	if len(b) < 4 {
		return 0
	}
	return binary.BigEndian.Uint32(b)
}

// BE64 returns a number in network byte order, 0 if b is too short.
func BE64(b []byte) uint64 {
	if len(b) < 8 {
		return 0
	}
	return binary.BigEndian.Uint64(b)
}

// Uint32 returns a number in the host's byte order, 0 if b is too short.
func Uint32(b []byte) uint32 {
	if len(b) < 4 {
		return 0
	}
	return binary.NativeEndian.Uint32(b)
}

// String returns a string up to its terminating zero.
func String(b []byte) string {
	if i := bytes.IndexByte(b, 0); i >= 0 {
		b = b[:i]
	}
	return string(b)
}
