// SPDX-License-Identifier: Apache-2.0

package udp

import (
	"encoding/binary"
	"math/rand/v2"
	"net/netip"
	"sync/atomic"
	"testing"

	"pgregory.net/rapid"
)

// The table finds what a search through all prefixes finds.
func TestTable(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		six := rapid.Bool().Draw(r, "six")
		addr := func() netip.Addr {
			low := [4]byte{
				byte(rapid.SampledFrom([]int{0, 10, 255}).Draw(r, "a")), byte(rapid.IntRange(0, 3).Draw(r, "b")), 255,
				byte(rapid.IntRange(0, 255).Draw(r, "c")),
			}
			if !six {
				return netip.AddrFrom4(low)
			}
			var b [16]byte
			for i := range 16 {
				b[i] = low[i%4]
			}
			return netip.AddrFrom16(b)
		}
		var peers []Peer
		for i := range rapid.IntRange(0, 12).Draw(r, "n") {
			a := addr()
			p, _ := a.Prefix(rapid.IntRange(0, a.BitLen()).Draw(r, "bits"))
			peers = append(peers, Peer{p, netip.AddrPortFrom(netip.AddrFrom4([4]byte{1, 1, 1, byte(i)}), 1)})
		}
		table := newTable(peers)
		for i, s := range table.spans {
			if s.last.less(s.first) || i > 0 && !table.spans[i-1].last.less(s.first) {
				r.Fatalf("spans overlap: %v", table.spans)
			}
		}
		for range 30 {
			a := addr()
			want := -1
			for i, p := range peers {
				if p.Prefix.Contains(a) && (want < 0 || p.Prefix.Bits() >= peers[want].Prefix.Bits()) {
					want = i
				}
			}
			var rt route
			got := rt.find(table, keyOf(a.AsSlice()))
			if again := rt.find(table, keyOf(a.AsSlice())); again != got {
				r.Fatalf("%s: found %v, then %v", a, got, again)
			}
			if (got == nil) != (want < 0) {
				r.Fatalf("%s: found %v, want %d of %v", a, got, want, peers)
			}
			if got == nil {
				continue
			}
			if last := (*[8]byte)(got.name)[7]; int(last) != want {
				r.Fatalf("%s: goes to %d, want %d of %v", a, last, want, peers)
			}
		}
	})
}

// naive is the checksum as RFC 1071 defines it.
func naive(b []byte) uint16 {
	var s uint32
	for i := 0; i < len(b); i += 2 {
		w := uint32(b[i]) << 8
		if i+1 < len(b) {
			w |= uint32(b[i+1])
		}
		s += w
		s = s>>16 + s&0xffff
	}
	return uint16(s)
}

func TestSum(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		b := rapid.SliceOfN(rapid.Byte(), 0, 300).Draw(r, "b")
		var out [2]byte
		binary.NativeEndian.PutUint16(out[:], fold(sum(b, 0)))
		if got, want := binary.BigEndian.Uint16(out[:]), naive(b); got%0xffff != want%0xffff {
			r.Fatalf("%x: %04x, want %04x", b, got, want)
		}
	})
}

// Aging keeps the header's checksum right.
func TestAge(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	for range 100_000 {
		b := make([]byte, ipv4Len)
		for i := range b {
			b[i] = byte(rnd.Uint32())
		}
		b[0] = 0x45
		binary.BigEndian.PutUint16(b[2:], ipv4Len)
		seal(b)
		p, ok := parse(b)
		if !ok {
			t.Fatal("no packet")
		}
		ttl := b[8]
		if alive := p.age(); alive != (ttl > 1) {
			t.Fatalf("TTL %d: %t", ttl, alive)
		}
		if ttl > 1 && (fold(sum(b, 0)) != 0xffff || b[8] != ttl-1) {
			t.Fatalf("%x: the checksum is wrong", b)
		}
	}
}

// FuzzCarry: arbitrary packets from the network break nothing.
func FuzzCarry(f *testing.F) {
	f.Add([]byte{0x45, 0, 0, 20, 0, 0, 0x40, 0, 64, 6})
	f.Add(tcp(100, 0))
	for _, proto := range []byte{protoTCP, protoUDP} {
		f.Add(large(false, proto, make([]byte, 50), 50)[vnetLen:])
		f.Add(large(true, proto, make([]byte, 50), 50)[vnetLen:])
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		w := &decap{stats: &Stats{}, answer: &answerer{}, sender: trusted(len(b) > 0 && b[0]>>4 == 6)}
		w.gro.withUDP = true
		for range 3 {
			w.carry(append([]byte(nil), b...))
		}
		bytes := 0
		for i := range w.gro.n {
			g := &w.gro.groups[i]
			g.pack()
			if g.n > 1 && len(g.first.b)+(g.n-1)*g.size < g.bytes {
				t.Errorf("%d packets of %d bytes are %d together", g.n, len(g.first.b), g.bytes)
			}
			bytes += g.bytes
		}
		if bytes > 3*len(b) {
			t.Errorf("%d bytes became %d", 3*len(b), bytes)
		}
	})
}

// FuzzCut: for arbitrary metadata of the device, the segments of a packet are consistent.
func FuzzCut(f *testing.F) {
	f.Add(append([]byte{1, 1, 0, 0, 10, 0, 20, 0, 16, 0}, tcp(100, 0)...))
	for _, proto := range []byte{protoTCP, protoUDP} {
		f.Add(large(false, proto, make([]byte, 50), 20))
		f.Add(large(true, proto, make([]byte, 50), 20))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) <= vnetLen || len(b) > frame {
			return
		}
		var current atomic.Pointer[table]
		current.Store(newTable([]Peer{
			{netip.MustParsePrefix("0.0.0.0/0"), netip.MustParseAddrPort("127.0.0.1:1")},
			{netip.MustParsePrefix("fd00::/8"), netip.MustParseAddrPort("127.0.0.1:1")},
		}))
		sock := socket{fd: -1, cuts: true}
		o := &encap{stats: &Stats{}, answer: &answerer{}, heads: make([]byte, headsLen), table: &current}
		o.out = newBatchSender(&sock, o.stats)
		o.carry(b)
		for i := range o.out.n {
			if m := &o.out.messages[i]; m.bytes > maxMessage+len(b) || len(m.offsets) > maxSegments {
				t.Errorf("a message of %d bytes, %d packets", m.bytes, len(m.offsets))
			}
		}
	})
}

// tcp is a packet with so much data.
func tcp(size int, at uint32) []byte {
	b := make([]byte, ipv4Len+tcpLen+size)
	b[0], b[8], b[9] = 0x45, 64, protoTCP
	binary.BigEndian.PutUint16(b[2:], uint16(len(b)))
	binary.BigEndian.PutUint16(b[6:], dontFrag)
	copy(b[12:], []byte{10, 244, 1, 5, 10, 244, 2, 5})
	upper := b[ipv4Len:]
	binary.BigEndian.PutUint32(upper[4:], at)
	upper[12], upper[13] = 5<<4, tcpACK
	for i := range size {
		upper[tcpLen+i] = byte(int(at) + i)
	}
	put(upper[16:], sum(upper, pseudo(b, false, protoTCP, len(upper))))
	seal(b)
	return b
}

// Packets of one connection join only where nothing distinguishes them, and a wrong checksum stays visible.
func TestJoin(t *testing.T) {
	change := func(b []byte, f func(b []byte)) []byte { f(b); return b }
	resum := func(b []byte) {
		b[36], b[37] = 0, 0
		put(b[36:], sum(b[20:], pseudo(b, false, protoTCP, len(b)-20)))
		seal(b)
	}
	for _, c := range []struct {
		name    string
		packets [][]byte
		groups  int
	}{
		{"in a row", [][]byte{tcp(100, 0), tcp(100, 100), tcp(50, 200)}, 1},
		{"behind a smaller one", [][]byte{tcp(100, 0), tcp(50, 100), tcp(50, 150)}, 2},
		{"with a gap", [][]byte{tcp(100, 0), tcp(100, 200)}, 2},
		{"larger than the first", [][]byte{tcp(100, 0), tcp(101, 100)}, 2},
		{"first one spoilt", [][]byte{change(tcp(100, 0), func(b []byte) { b[60]++ }), tcp(100, 100)}, 2},
		{"second one spoilt", [][]byte{tcp(100, 0), change(tcp(100, 100), func(b []byte) { b[60]++ })}, 2},
		{"another TOS", [][]byte{tcp(100, 0), change(tcp(100, 100), func(b []byte) { b[1] = 3; resum(b) })}, 2},
		{"another connection", [][]byte{tcp(100, 0), change(tcp(100, 100), func(b []byte) { b[21]++; resum(b) })}, 2},
		{"another acknowledgment", [][]byte{tcp(100, 0), change(tcp(100, 100), func(b []byte) { b[30]++; resum(b) })}, 2},
		{
			"pushed",
			[][]byte{tcp(100, 0), change(tcp(100, 100), func(b []byte) { b[33] |= tcpPSH; resum(b) }), tcp(100, 200)},
			2,
		},
		{"with an end", [][]byte{tcp(100, 0), change(tcp(100, 100), func(b []byte) { b[33] |= 1; resum(b) })}, 2},
		{
			"fragments", [][]byte{
				change(tcp(100, 0), func(b []byte) { b[6] = 0x20; seal(b) }),
				change(tcp(100, 100), func(b []byte) { b[6] = 0x20; seal(b) }),
			}, 2,
		},
		{
			"two connections mixed", [][]byte{
				tcp(10, 0), change(tcp(10, 0), func(b []byte) { b[21]++; resum(b) }), tcp(10, 10),
				change(tcp(10, 10), func(b []byte) { b[21]++; resum(b) }),
			}, 2,
		},
	} {
		var j groCoalescer
		for _, b := range c.packets {
			p, ok := parse(b)
			if !ok {
				t.Fatalf("%s: no packet", c.name)
			}
			j.add(&p)
		}
		if j.n != c.groups {
			t.Errorf("%s: %d packets for the device, want %d", c.name, j.n, c.groups)
		}
	}
}

// trusted is a sender that may send anything of a family.
func trusted(v6 bool) sender {
	all, node := netip.MustParsePrefix("0.0.0.0/0"), netip.MustParseAddr("192.168.0.2")
	if v6 {
		all, node = netip.MustParsePrefix("::/0"), netip.MustParseAddr("fd00::2")
	}
	return newAcceptor(Accept{Senders: []Sender{{[]netip.Addr{node}, []netip.Prefix{all}}}}).sender(node)
}

// TestAccept: which sources are accepted from which sender.
func TestAccept(t *testing.T) {
	addr, prefixes := netip.MustParseAddr, func(all ...string) (out []netip.Prefix) {
		for _, p := range all {
			out = append(out, netip.MustParsePrefix(p))
		}
		return out
	}
	a := newAcceptor(Accept{
		Senders: []Sender{
			{
				[]netip.Addr{addr("192.168.0.2"), addr("fd00::2"), addr("192.168.1.2")},
				prefixes("10.244.2.0/24", "fd00:244:2::/64", "192.168.0.2/32", "10.244.3.7/32"),
			},
			{[]netip.Addr{addr("192.168.0.3")}, prefixes("10.244.3.0/24")},
		},
		Outside: prefixes("8.0.0.0/7", "10.0.0.0/8"), Cluster: prefixes("10.244.0.0/16"),
		Relays: []Relay{{addr("192.168.1.2"), addr("10.244.1.7")}},
	})
	for _, c := range []struct {
		node, from string
		want       bool
	}{
		{"192.168.0.2", "10.244.2.0", true},
		{"192.168.0.2", "10.244.2.255", true},
		{"192.168.1.2", "10.244.2.9", true},
		{"192.168.0.2", "10.244.3.7", true},
		{"192.168.0.2", "192.168.0.2", true},
		{"192.168.0.2", "192.168.1.2", false},
		{"192.168.0.2", "10.244.3.8", false},
		{"192.168.0.2", "10.244.1.255", false},
		{"192.168.0.3", "10.244.2.9", false},
		{"192.168.0.3", "10.244.3.9", true},
		{"192.168.0.3", "9.9.9.9", true},
		{"192.168.0.3", "10.1.0.0", true},
		{"192.168.0.3", "7.255.255.255", false},
		{"192.168.0.3", "127.0.0.1", false},
		{"192.168.0.4", "9.9.9.9", false},
		{"192.168.0.4", "10.244.2.9", false},
		{"fd00::2", "fd00:244:2::9", true},
		{"fd00::2", "fd00:244:3::9", false},
		{"fd00::2", "10.244.2.9", false},
		{"192.168.0.2", "fd00:244:2::9", false},
		{"fd00::3", "fd00:244:2::9", false},
	} {
		b := make([]byte, 40)
		b[0], b[3] = 0x45, 40
		copy(b[12:], addr(c.from).AsSlice())
		if addr(c.from).Is6() {
			b[0], b[3] = 0x60, 0
			copy(b[8:], addr(c.from).AsSlice())
		}
		p, ok := parse(b)
		if !ok {
			t.Fatal("no packet")
		}
		if s := a.sender(addr(c.node)); s.may(&p) != c.want {
			t.Errorf("%s sends from %s: %v, want %v", c.node, c.from, !c.want, c.want)
		}
	}
	for _, c := range []struct {
		node, from, to string
		want           bool
	}{
		{"192.168.1.2", "10.244.3.9", "10.244.1.7", true},
		{"192.168.1.2", "10.244.3.9", "10.244.1.8", false},
		{"192.168.0.2", "10.244.3.9", "10.244.1.7", false},
		{"192.168.1.2", "10.244.1.9", "10.244.1.7", false},
	} {
		b := tcp(10, 0)
		copy(b[12:], addr(c.from).AsSlice())
		copy(b[16:], addr(c.to).AsSlice())
		p, _ := parse(b)
		if s := a.sender(addr(c.node)); s.may(&p) != c.want {
			t.Errorf("%s passes on from %s to %s: %v, want %v", c.node, c.from, c.to, !c.want, c.want)
		}
	}
	if p, _ := parse(tcp(10, 0)); new(sender).may(&p) {
		t.Error("a sender that nobody knows is accepted")
	}
}

// Nothing is allocated for a packet.
func TestNoAllocations(t *testing.T) {
	w := &decap{stats: &Stats{}, answer: &answerer{}, sender: trusted(false)}
	packets := [][]byte{tcp(1000, 0), tcp(1000, 1000), tcp(1000, 2000)}
	round := func() {
		for _, b := range packets {
			b[8] = 64
			seal(b)
			w.carry(b)
		}
		for i := range w.gro.n {
			w.gro.groups[i].pack()
		}
		w.gro.n = 0
		seal(packets[0])
		binary.BigEndian.PutUint16(packets[0][2:], uint16(len(packets[0])))
		binary.BigEndian.PutUint16(packets[0][36:], 0)
		put(packets[0][36:], sum(packets[0][20:], pseudo(packets[0], false, protoTCP, len(packets[0])-20)))
	}
	round()
	if n := testing.AllocsPerRun(100, round); n != 0 {
		t.Errorf("%v allocations for three packets", n)
	}
}

// BenchmarkPeers is what a change among 10,000 peers costs, and finding one of them.
func BenchmarkPeers(b *testing.B) {
	var peers []Peer
	for i := range 10_000 {
		a := [4]byte{10, byte(i >> 8), byte(i), 0}
		peers = append(peers, Peer{
			netip.PrefixFrom(netip.AddrFrom4(a), 24),
			netip.AddrPortFrom(netip.AddrFrom4([4]byte{192, 168, byte(i >> 8), byte(i)}), 8285),
		})
	}
	b.Run("change", func(b *testing.B) {
		for b.Loop() {
			newTable(peers)
		}
	})
	table := newTable(peers)
	b.Run("find", func(b *testing.B) {
		i := uint32(0)
		for b.Loop() {
			i += 7919 << 8
			table.find(key{0, uint64(10<<24 | i%(10_000<<8))})
		}
	})
}
