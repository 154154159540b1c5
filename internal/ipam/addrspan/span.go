// SPDX-License-Identifier: Apache-2.0

// Package addrspan calculates with ranges of addresses: those of a configuration, of a pool or of a block.
package addrspan

import (
	"net/netip"
	"slices"
)

// Span is a range of addresses, both ends included.
type Span struct{ From, To netip.Addr }

// String returns "FROM-TO".
func (s Span) String() string { return s.From.String() + "-" + s.To.String() }

// Contains reports whether an address is in the span.
func (s Span) Contains(a netip.Addr) bool { return !a.Less(s.From) && !s.To.Less(a) }

// Overlaps reports whether the span and a prefix have common addresses.
func (s Span) Overlaps(p netip.Prefix) bool {
	return s.From.BitLen() == p.Addr().BitLen() && !s.To.Less(p.Addr()) && !Last(p).Less(s.From)
}

// Single returns the span of one address.
func Single(a netip.Addr) Span { return Span{a, a} }

// Whole returns the span of a prefix.
func Whole(p netip.Prefix) Span { return Span{p.Masked().Addr(), Last(p)} }

// Last returns the last address of a prefix.
func Last(p netip.Prefix) netip.Addr {
	b := p.Addr().AsSlice()
	for bit := p.Bits(); bit < len(b)*8; bit++ {
		b[bit/8] |= 0x80 >> (bit % 8)
	}
	a, _ := netip.AddrFromSlice(b)
	return a
}

// Without returns the addresses of the spans that are not in out.
func Without(spans []Span, out Span) []Span {
	var rest []Span
	for _, s := range spans {
		if s.From.BitLen() != out.From.BitLen() || s.To.Less(out.From) || out.To.Less(s.From) {
			rest = append(rest, s)
			continue
		}
		if s.From.Less(out.From) {
			rest = append(rest, Span{s.From, out.From.Prev()})
		}
		if out.To.Less(s.To) {
			rest = append(rest, Span{out.To.Next(), s.To})
		}
	}
	return rest
}

// In reports whether one of the spans has an address.
func In(spans []Span, a netip.Addr) bool {
	return slices.ContainsFunc(spans, func(s Span) bool { return s.Contains(a) })
}

// Count returns how many addresses the spans have, at most 1<<30.
func Count(spans []Span) int {
	const most = 1 << 30
	n := 0
	for _, s := range spans {
		f, t := s.From.As16(), s.To.As16()
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

// Each calls visit for the addresses of a prefix until it returns false.
func Each(p netip.Prefix, visit func(netip.Addr) bool) {
	for a := p.Addr(); a.IsValid() && p.Contains(a); a = a.Next() {
		if !visit(a) {
			return
		}
	}
}

// Size returns how many addresses a block has. It must have less than 1<<62.
func Size(block netip.Prefix) int { return 1 << (block.Addr().BitLen() - block.Bits()) }

// Usable returns the addresses of a network that a host can have: without the first and the last, as in whereabouts for
// both families, unless there are no others.
func Usable(p netip.Prefix) Span {
	s := Whole(p)
	if p.Addr().BitLen()-p.Bits() < 2 {
		return s
	}
	return Span{s.From.Next(), s.To.Prev()}
}

// Clip returns the addresses of the spans that are in another one.
func Clip(spans []Span, in Span) []Span {
	var out []Span
	for _, s := range spans {
		if s.From.Less(in.From) {
			s.From = in.From
		}
		if in.To.Less(s.To) {
			s.To = in.To
		}
		if !s.To.Less(s.From) {
			out = append(out, s)
		}
	}
	return out
}
