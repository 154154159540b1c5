// SPDX-License-Identifier: Apache-2.0

package blocks

import (
	"net/netip"
	"slices"
)

// span is a range of addresses, both ends included.
type span struct{ from, to netip.Addr }

func (s span) String() string { return s.from.String() + "-" + s.to.String() }

func (s span) contains(a netip.Addr) bool { return !a.Less(s.from) && !s.to.Less(a) }

func (s span) overlaps(p netip.Prefix) bool {
	return s.from.BitLen() == p.Addr().BitLen() && !s.to.Less(p.Addr()) && !last(p).Less(s.from)
}

// whole returns the span of a prefix.
func whole(p netip.Prefix) span { return span{p.Masked().Addr(), last(p)} }

// last returns the last address of a prefix.
func last(p netip.Prefix) netip.Addr {
	b := p.Addr().AsSlice()
	for bit := p.Bits(); bit < len(b)*8; bit++ {
		b[bit/8] |= 0x80 >> (bit % 8)
	}
	a, _ := netip.AddrFromSlice(b)
	return a
}

// without returns the spans minus one.
func without(spans []span, out span) []span {
	var rest []span
	for _, s := range spans {
		if s.from.BitLen() != out.from.BitLen() || s.to.Less(out.from) || out.to.Less(s.from) {
			rest = append(rest, s)
			continue
		}
		if s.from.Less(out.from) {
			rest = append(rest, span{s.from, out.from.Prev()})
		}
		if out.to.Less(s.to) {
			rest = append(rest, span{out.to.Next(), s.to})
		}
	}
	return rest
}

func inSpans(spans []span, a netip.Addr) bool {
	return slices.ContainsFunc(spans, func(s span) bool { return s.contains(a) })
}

// count returns how many addresses the spans have, capped at most.
func count(spans []span) int {
	const most = 1 << 30
	n := 0
	for _, s := range spans {
		f, t := s.from.As16(), s.to.As16()
		diff := 0
		for i := range f {
			diff = diff<<8 + int(t[i]) - int(f[i])
			if diff > most {
				return most
			}
		}
		n += diff + 1
	}
	return min(n, most)
}

// each calls visit for the addresses of a prefix until it returns false.
func each(p netip.Prefix, visit func(netip.Addr) bool) {
	for a := p.Addr(); a.IsValid() && p.Contains(a); a = a.Next() {
		if !visit(a) {
			return
		}
	}
}

// size returns how many addresses a block has.
func size(block netip.Prefix) int { return 1 << (block.Addr().BitLen() - block.Bits()) }
