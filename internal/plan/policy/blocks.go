// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"net/netip"
	"slices"

	"github.com/weft-net/weft/internal/model"
)

// rangesOf returns the union of the addresses of a family in ipBlock with except: each block without its own
// exceptions, because an exception of one block may be in another.
func rangesOf(blocks []model.IPBlock, six bool) []addrRange {
	var all []addrRange
	for _, b := range blocks {
		if b.CIDR.Addr().Is6() == six {
			all = append(all, subtractExcept(b)...)
		}
	}
	return mergeRanges(all)
}

// subtractExcept returns a block without its exceptions.
func subtractExcept(b model.IPBlock) []addrRange {
	cidr := b.CIDR.Masked()
	var except []addrRange
	for _, e := range b.Except {
		if e = e.Masked(); e.Overlaps(cidr) {
			except = append(except, addrRange{e.Addr(), lastOf(e)})
		}
	}
	var out []addrRange
	from, last := cidr.Addr(), lastOf(cidr)
	for _, e := range mergeRanges(except) {
		if from.Compare(e.first) < 0 {
			out = append(out, addrRange{from, e.first.Prev()})
		}
		if from = e.last.Next(); e.last.Compare(last) >= 0 || !from.IsValid() {
			return out
		}
	}
	return append(out, addrRange{from, last})
}

// mergeRanges returns the union of ranges of one family: sorted, without adjacent ones.
func mergeRanges(in []addrRange) []addrRange {
	slices.SortFunc(in, func(a, b addrRange) int { return a.first.Compare(b.first) })
	var out []addrRange
	for _, r := range in {
		if n := len(out) - 1; n >= 0 && (r.first.Compare(out[n].last) <= 0 || out[n].last.Next() == r.first) {
			if out[n].last.Compare(r.last) < 0 {
				out[n].last = r.last
			}
			continue
		}
		out = append(out, r)
	}
	return out
}

func lastOf(p netip.Prefix) netip.Addr {
	b := p.Masked().Addr().AsSlice()
	for i := p.Bits(); i < len(b)*8; i++ {
		b[i/8] |= 0x80 >> (i % 8)
	}
	a, _ := netip.AddrFromSlice(b)
	return a
}

// addrRange is a range of addresses of one family, both ends included.
type addrRange struct{ first, last netip.Addr }

func (r addrRange) contains(a netip.Addr) bool {
	return a.BitLen() == r.first.BitLen() && r.first.Compare(a) <= 0 && a.Compare(r.last) <= 0
}

// prefix returns the range as a prefix, if it is one.
func (r addrRange) prefix() (netip.Prefix, bool) {
	for bits := range r.first.BitLen() + 1 {
		if p := netip.PrefixFrom(r.first, bits); p.Masked().Addr() == r.first && lastOf(p) == r.last {
			return p, true
		}
	}
	return netip.Prefix{}, false
}

// String returns the range in nft's syntax.
func (r addrRange) String() string {
	switch p, ok := r.prefix(); {
	case r.first == r.last:
		return r.first.String()
	case ok:
		return p.String()
	}
	return r.first.String() + "-" + r.last.String()
}
