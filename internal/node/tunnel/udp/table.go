// SPDX-License-Identifier: Apache-2.0

package udp

import (
	"encoding/binary"
	"net/netip"
	"slices"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Peer is a prefix and its node.
type Peer struct {
	Prefix netip.Prefix
	To     netip.AddrPort
}

// key is an address as a number, comparable with others of its family.
type key struct{ hi, lo uint64 }

func (k key) less(o key) bool { return k.hi < o.hi || k.hi == o.hi && k.lo < o.lo }

func (k key) next() key {
	k.lo++
	if k.lo == 0 {
		k.hi++
	}
	return k
}

func (k key) before() key {
	if k.lo == 0 {
		k.hi--
	}
	k.lo--
	return k
}

// keyOf converts an address of 4 or 16 bytes.
func keyOf(b []byte) key {
	if len(b) == 4 {
		return key{0, uint64(binary.BigEndian.Uint32(b))}
	}
	return key{binary.BigEndian.Uint64(b), binary.BigEndian.Uint64(b[8:])}
}

// rangeOf returns the first and the last address of a prefix.
func rangeOf(p netip.Prefix) (first, last key) {
	b := p.Masked().Addr().AsSlice()
	first = keyOf(b)
	for i := p.Bits(); i < len(b)*8; i++ {
		b[i/8] |= 1 << (7 - i%8)
	}
	return first, keyOf(b)
}

// target is the destination node of a datagram in the kernel's format. It is immutable.
type target struct {
	name    unsafe.Pointer
	nameLen uint32
}

func newTarget(a netip.AddrPort) *target {
	if a.Addr().Is4() {
		sa := &unix.RawSockaddrInet4{Family: unix.AF_INET, Addr: a.Addr().As4()}
		binary.BigEndian.PutUint16((*[2]byte)(unsafe.Pointer(&sa.Port))[:], a.Port())
		return &target{unsafe.Pointer(sa), unix.SizeofSockaddrInet4}
	}
	sa := &unix.RawSockaddrInet6{Family: unix.AF_INET6, Addr: a.Addr().As16()}
	binary.BigEndian.PutUint16((*[2]byte)(unsafe.Pointer(&sa.Port))[:], a.Port())
	return &target{unsafe.Pointer(sa), unix.SizeofSockaddrInet6}
}

// span is a range of addresses of one node.
type span struct {
	first, last key
	to          *target
}

// table is the routing table: sorted spans that do not overlap. It is immutable, so that it can be replaced while
// packets are forwarded.
type table struct{ spans []span }

// newTable returns the table of the peers; the longest prefix that contains an address is used.
func newTable(peers []Peer) *table {
	sorted := slices.Clone(peers)
	slices.SortStableFunc(sorted, func(a, b Peer) int {
		if c := a.Prefix.Masked().Addr().Compare(b.Prefix.Masked().Addr()); c != 0 {
			return c
		}
		return a.Prefix.Bits() - b.Prefix.Bits()
	})
	targets := map[netip.AddrPort]*target{}
	var open []span // each one contains the next
	t := &table{}
	var at key // addresses below it are done
	emit := func(last key, to *target) {
		if !last.less(at) {
			t.spans = append(t.spans, span{at, last, to})
			at = last.next()
		}
	}
	for _, p := range sorted {
		to := targets[p.To]
		if to == nil {
			to = newTarget(p.To)
			targets[p.To] = to
		}
		s := span{to: to}
		s.first, s.last = rangeOf(p.Prefix)
		for len(open) > 0 && open[len(open)-1].last.less(s.first) {
			emit(open[len(open)-1].last, open[len(open)-1].to)
			open = open[:len(open)-1]
		}
		if len(open) > 0 && at.less(s.first) {
			emit(s.first.before(), open[len(open)-1].to)
		}
		at = s.first
		open = append(open, s)
	}
	for i := len(open) - 1; i >= 0; i-- {
		emit(open[i].last, open[i].to)
		if (at == key{}) { // after the last address
			break
		}
	}
	return t
}

// find returns the span of an address, nil if no node has it.
func (t *table) find(k key) *span {
	low, high := 0, len(t.spans)
	for low < high {
		mid := int(uint(low+high) >> 1)
		if t.spans[mid].last.less(k) {
			low = mid + 1
		} else {
			high = mid
		}
	}
	if low == len(t.spans) || k.less(t.spans[low].first) {
		return nil
	}
	return &t.spans[low]
}

// route caches the span of the last packet: the next one usually has the same.
type route struct {
	table *table
	last  *span
}

func (r *route) find(t *table, k key) *target {
	if r.table != t {
		r.table, r.last = t, nil
	}
	if s := r.last; s != nil && !k.less(s.first) && !s.last.less(k) {
		return s.to
	}
	if r.last = t.find(k); r.last == nil {
		return nil
	}
	return r.last.to
}
