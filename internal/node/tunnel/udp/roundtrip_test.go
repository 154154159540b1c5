// SPDX-License-Identifier: Apache-2.0

package udp

import (
	"bytes"
	"encoding/binary"
	"net/netip"
	"sync/atomic"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
	"pgregory.net/rapid"
)

// large is a packet as the device hands it over: data of one connection, to be cut after size bytes each.
func large(v6 bool, proto byte, data []byte, size int) []byte {
	head, upper, place := ipv4Len, tcpLen, 16
	if v6 {
		head = ipv6Len
	}
	if proto == protoUDP {
		upper, place = udpLen, 6
	}
	b := make([]byte, vnetLen+head+upper+len(data))
	p := packet{b: b[vnetLen:], v6: v6, head: head, proto: proto}
	if v6 {
		p.b[0], p.b[6], p.b[7] = 0x60, proto, 64
		copy(p.b[8:], netip.MustParseAddr("fd00:244:1::5").AsSlice())
		copy(p.b[24:], netip.MustParseAddr("fd00:244:2::5").AsSlice())
	} else {
		p.b[0], p.b[8], p.b[9], p.b[6] = 0x45, 64, proto, dontFrag>>8
		copy(p.b[12:], []byte{10, 244, 1, 5, 10, 244, 2, 5})
	}
	p.resize()
	l4 := p.b[head:]
	binary.BigEndian.PutUint16(l4, 1000)
	binary.BigEndian.PutUint16(l4[2:], 2000)
	if proto == protoTCP {
		binary.BigEndian.PutUint32(l4[4:], 1<<32-7) // the number overflows on its way
		l4[12], l4[13] = 5<<4, tcpACK|tcpPSH
	} else {
		binary.BigEndian.PutUint16(l4[4:], uint16(len(l4)))
	}
	copy(l4[upper:], data)
	if !v6 {
		seal(p.b[:head])
	}
	binary.NativeEndian.PutUint16(l4[place:], fold(pseudo(p.b, v6, proto, len(l4))))
	h := vnet{
		flags: needsCsum, gso: gsoUDP, gsoSize: uint16(size), headLen: uint16(head + upper), csumStart: uint16(head),
		csumOffset: uint16(place),
	}
	if proto == protoTCP {
		if h.gso = gsoTCP4; v6 {
			h.gso = gsoTCP6
		}
	}
	h.write(b)
	return b
}

// flat are the datagrams of a message.
func flat(m *message) [][]byte {
	var out [][]byte
	at := 0
	for _, end := range m.offsets {
		var b []byte
		for _, piece := range m.pieces[at:end] {
			b = append(b, unsafe.Slice(piece.Base, int(piece.Len))...)
		}
		out, at = append(out, b), end
	}
	return out
}

func joinedBytes(pieces []unix.Iovec) []byte {
	var b []byte
	for _, piece := range pieces {
		b = append(b, unsafe.Slice(piece.Base, int(piece.Len))...)
	}
	return b
}

// What was cut is whole packets whose checksums are right, and becomes the same large packet again at the other end.
func TestCutAndJoin(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		v6, proto := rapid.Bool().Draw(r, "v6"), rapid.SampledFrom([]byte{protoTCP, protoUDP}).Draw(r, "proto")
		size := rapid.IntRange(1, 1400).Draw(r, "size")
		data := bytes.Repeat([]byte{1, 2, 3, 5, 7, 11, 13, 255, 0},
			8000)[:rapid.IntRange(1, min(60*size, 60000)).Draw(r, "length")]
		b := large(v6, proto, data, size)
		want := large(v6, proto, data, size)
		var current atomic.Pointer[table]
		end := netip.MustParseAddrPort("127.0.0.1:1")
		current.Store(
			newTable([]Peer{{netip.MustParsePrefix("10.244.2.0/24"), end}, {netip.MustParsePrefix("fd00:244:2::/64"), end}}),
		)
		sock := socket{fd: -1, cuts: true}
		o := &encap{stats: &Stats{}, answer: &answerer{}, heads: make([]byte, headsLen), table: &current}
		o.out = newBatchSender(&sock, o.stats)
		o.carry(b)
		w := &decap{stats: &Stats{}, answer: &answerer{}, sender: trusted(v6)}
		w.gro.withUDP = true
		count := 0
		for i := range o.out.n {
			for _, d := range flat(&o.out.messages[i]) {
				p, ok := parse(d)
				if !ok || !p.sound() || !v6 && fold(sum(p.b[:ipv4Len], 0)) != 0xffff {
					r.Fatalf("packet %d is not sound: %x", count, d)
				}
				if len(d)-p.payload() > size {
					r.Fatalf("packet %d has %d bytes of data", count, len(d)-p.payload())
				}
				w.carry(d)
				count++
			}
		}
		if n := (len(data) + size - 1) / size; count != n || o.stats.Malformed.Load() != 0 {
			r.Fatalf("%d packets, want %d", count, n)
		}
		if w.gro.n != 1 {
			r.Fatalf("%d packets for the device", w.gro.n)
		}
		got := joinedBytes(w.gro.groups[0].pack())
		p, q := packet{b: want[vnetLen:], v6: v6}, packet{b: got[vnetLen:], v6: v6}
		for range 2 {
			p.age()
		}
		if count == 1 { // it comes as it was sent
			got, want = q.b[len(q.b)-len(data):], p.b[len(p.b)-len(data):]
		}
		if !bytes.Equal(got, want) {
			r.Fatalf("came out as\n%x\nwant\n%x", got[:min(80, len(got))], want[:min(80, len(want))])
		}
	})
}
