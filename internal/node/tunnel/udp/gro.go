// SPDX-License-Identifier: Apache-2.0

package udp

import (
	"bytes"
	"encoding/binary"

	"golang.org/x/sys/unix"
)

const (
	maxGroups = 64
	// maxJoined is the maximum length of a merged packet in bytes, and maxPieces of how many packets it may consist.
	maxJoined = 65535
	maxPieces = 64
	tcpACK    = 0x10
	tcpPSH    = 0x08
	dontFrag  = 0x4000
)

// group is one packet, or consecutive packets of one connection that are merged.
type group struct {
	first  packet
	head   int // length of the headers; 0: cannot be merged
	size   int // of each packet's data; the last one may have less
	bytes  int // of the merged packet
	next   uint32
	closed bool
	sound  bool // the first packet's checksum was verified
	n      int
	vnet   [vnetLen]byte
	pieces []unix.Iovec
}

// groCoalescer merges consecutive packets of a connection for the device, as generic receive offload does.
type groCoalescer struct {
	groups  [maxGroups]group
	n       int
	withUDP bool
}

func (j *groCoalescer) full() bool { return j.n == maxGroups }

// add merges a packet into the latest group of its connection, if possible, or starts a new group. The coalescer must
// not be full, and the packet must not be changed until it is written.
func (j *groCoalescer) add(p *packet) {
	head := p.payload()
	if head == len(p.b) || p.proto == protoUDP && !j.withUDP {
		head = 0
	}
	if head > 0 {
		if g := j.latest(p); g != nil && g.joins(p, head) {
			return
		}
	}
	g := &j.groups[j.n]
	j.n++
	g.first, g.head, g.size, g.bytes, g.n = *p, 0, 0, len(p.b), 1
	g.closed, g.sound = false, false
	g.pieces = append(g.pieces[:0], unix.Iovec{Base: &g.vnet[0]}, unix.Iovec{Base: &p.b[0]})
	g.pieces[0].SetLen(vnetLen)
	g.pieces[1].SetLen(len(p.b))
	if head == 0 || !p.mayJoin() {
		return
	}
	g.head, g.size = head, len(p.b)-head
	if p.proto == protoTCP {
		g.next = seq(p) + uint32(g.size)
		g.closed = p.b[p.head+13]&tcpPSH != 0
	}
}

// latest returns the last group of a packet's connection.
func (j *groCoalescer) latest(p *packet) *group {
	for i := j.n - 1; i >= max(0, j.n-searchDepth); i-- {
		g := &j.groups[i]
		if f := &g.first; f.v6 == p.v6 && f.proto == p.proto && f.whole && len(f.b) >= f.head+4 &&
			bytes.Equal(f.b[f.head:f.head+4], p.b[p.head:p.head+4]) && bytes.Equal(f.src(), p.src()) &&
			bytes.Equal(f.dst(), p.dst()) {
			return g
		}
	}
	return nil
}

// mayJoin reports whether a packet with a TCP or UDP header and data can be merged at all.
func (p *packet) mayJoin() bool {
	if !p.whole {
		return false
	}
	if !p.v6 && binary.BigEndian.Uint16(p.b[6:]) != dontFrag { // otherwise its ID has a meaning
		return false
	}
	if p.proto == protoTCP {
		return p.b[p.head+13]&^tcpPSH == tcpACK && p.b[p.head+12]&15 == 0
	}
	return p.b[p.head+6] != 0 || p.b[p.head+7] != 0 // has a checksum
}

// joins merges a packet of the same connection if segmentation of the result would yield the same packets.
func (g *group) joins(p *packet, head int) bool {
	size := len(p.b) - head
	switch {
	case g.closed, g.head != head, size > g.size, g.n == maxPieces, g.bytes+size > maxJoined, !p.mayJoin(),
		!g.sameHeader(p):
		return false
	case p.proto == protoTCP && seq(p) != g.next:
		return false
	case !g.sound && !g.first.sound():
		g.head = 0
		return false
	}
	g.sound = true
	if !p.sound() {
		return false
	}
	v := unix.Iovec{Base: &p.b[head]}
	v.SetLen(size)
	g.pieces = append(g.pieces, v)
	g.bytes += size
	g.next += uint32(size)
	g.n++
	g.closed = size < g.size
	if p.proto == protoTCP && p.b[p.head+13]&tcpPSH != 0 {
		g.closed = true
		g.first.b[p.head+13] |= tcpPSH
	}
	return true
}

// sameHeader compares the header fields that must be equal in merged packets.
func (g *group) sameHeader(p *packet) bool {
	a, b := g.first.b, p.b
	if p.v6 {
		if a[7] != b[7] || !bytes.Equal(a[:4], b[:4]) { // hop limit; class and flow
			return false
		}
	} else if a[1] != b[1] || a[8] != b[8] { // TOS, TTL
		return false
	}
	if p.proto == protoUDP {
		return true
	}
	h := p.head
	// acknowledged, length, window
	return bytes.Equal(a[h+8:h+13], b[h+8:h+13]) && bytes.Equal(a[h+14:h+16], b[h+14:h+16]) &&
		bytes.Equal(a[h+tcpLen:g.head], b[h+tcpLen:g.head]) // options
}

// sound reports whether the packet's checksum is right: merging would hide a wrong one.
func (p *packet) sound() bool {
	upper := p.b[p.head:]
	if p.proto == protoUDP && int(binary.BigEndian.Uint16(upper[4:])) != len(upper) {
		return false
	}
	return fold(sum(upper, pseudo(p.b, p.v6, p.proto, len(upper)))) == 0xffff
}

// pack returns the group in the device's format.
func (g *group) pack() []unix.Iovec {
	var h vnet
	if g.n > 1 {
		p := packet{b: g.first.b, v6: g.first.v6, head: g.first.head, proto: g.first.proto}
		if p.v6 {
			binary.BigEndian.PutUint16(p.b[4:], uint16(g.bytes-ipv6Len))
		} else {
			binary.BigEndian.PutUint16(p.b[2:], uint16(g.bytes))
			seal(p.b[:p.head])
		}
		h.flags, h.headLen, h.gsoSize, h.csumStart = needsCsum, uint16(g.head), uint16(g.size), uint16(p.head)
		upper := p.b[p.head:]
		length := g.bytes - p.head
		if p.proto == protoUDP {
			h.gso, h.csumOffset = gsoUDP, 6
			binary.BigEndian.PutUint16(upper[4:], uint16(length))
		} else if h.gso, h.csumOffset = gsoTCP4, 16; p.v6 {
			h.gso = gsoTCP6
		}
		binary.NativeEndian.PutUint16(upper[h.csumOffset:], fold(pseudo(p.b, p.v6, p.proto, length)))
	}
	h.write(g.vnet[:])
	return g.pieces
}
