// SPDX-License-Identifier: Apache-2.0

package rtnl

import (
	"encoding/binary"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/weft-net/weft/internal/kernel/netlink"
	"github.com/weft-net/weft/internal/nettest"
)

// attachment returns roughly the requests of an ADD of a veth: a pair of links and a dozen addresses and routes.
func attachment() []*Message {
	const linkInfo, kind, data, peer = unix.IFLA_LINKINFO, 1, 2, 1
	m := New(unix.RTM_NEWLINK, unix.NLM_F_CREATE|unix.NLM_F_EXCL, "create", Name("veth"),
		make([]byte, unix.SizeofIfInfomsg))
	m.String(unix.IFLA_IFNAME, "veth0123456789a")
	m.Uint32(unix.IFLA_MTU, 1450)
	m.Nest(linkInfo, func() {
		m.String(kind, "veth")
		m.Nest(data, func() {
			m.Nest(peer, func() {
				m.Raw(make([]byte, unix.SizeofIfInfomsg))
				m.String(unix.IFLA_IFNAME, "eth0")
				m.Attr(unix.IFLA_ADDRESS, []byte{2, 0, 0, 0, 0, 1})
			})
		})
	})
	batch := []*Message{m}
	for i := range 12 {
		batch = append(batch, address(i+1).Forgiving(unix.EEXIST))
	}
	return batch
}

// BenchmarkPack builds and packs the requests of one attachment.
func BenchmarkPack(b *testing.B) {
	s := &Socket{}
	b.ReportAllocs()
	for b.Loop() {
		packed(s, attachment())
	}
}

// BenchmarkParse reads an answer of twenty links, with their nested attributes.
func BenchmarkParse(b *testing.B) {
	s := &Socket{}
	one := packed(s, attachment()[:1])
	var datagram []byte
	for range 20 {
		datagram = append(datagram, one...)
	}
	b.ReportAllocs()
	for b.Loop() {
		if n := countAttrs(datagram); n != 20*8 {
			b.Fatalf("%d attributes", n)
		}
	}
}

// BenchmarkSend sends a batch to the kernel, all of whose objects exist already.
func BenchmarkSend(b *testing.B) {
	s, err := Open(nettest.NS(b, "ns"))
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	batch := attachment()[1:]
	b.ReportAllocs()
	for b.Loop() {
		if err := s.Send(b.Context(), batch); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkDump reads a table of 500 addresses.
func BenchmarkDump(b *testing.B) {
	s, err := Open(nettest.NS(b, "ns"))
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	var batch []*Message
	for i := range 500 {
		batch = append(batch, address(i+1))
	}
	if err := s.Send(b.Context(), batch); err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		n := 0
		if err := s.Dump(b.Context(), addresses(), func([]byte) { n++ }); err != nil || n != 500 {
			b.Fatal(n, err)
		}
	}
}

func packed(s *Socket, batch []*Message) []byte {
	s.out.Reset(1)
	s.pack(batch)
	s.out.Close()
	return s.out.Bytes()
}

func countAttrs(datagram []byte) (n int) {
	netlink.Messages(datagram, func(a netlink.Answer) { n += countIn(a.Body[unix.SizeofIfInfomsg:]) })
	return n
}

// countIn counts the attributes of a link, as link.Parse reads them.
func countIn(body []byte) (n int) {
	for kind, data := range netlink.Attrs(body) {
		n++
		if kind != unix.IFLA_LINKINFO {
			continue
		}
		for kind, data := range netlink.Attrs(data) {
			n++
			if kind != 2 {
				continue
			}
			for _, data := range netlink.Attrs(data) {
				n++
				for kind, data := range netlink.Attrs(data[unix.SizeofIfInfomsg:]) {
					n++
					if kind == unix.IFLA_MTU {
						n += int(binary.NativeEndian.Uint32(data))
					}
				}
			}
		}
	}
	return n
}
