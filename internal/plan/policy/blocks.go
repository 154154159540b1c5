// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"net/netip"
	"slices"

	"github.com/weft-net/weft/internal/model"
)

// rangesOf returns the union of the addresses of a family in ipBlock with except: each block without its own
// exceptions, because an exception of one block may be in another.
func rangesOf(blocks []*model.IPBlock, six bool) []addrRange {
	n := 0
	for _, b := range blocks {
		if b.CIDR.Addr().Is6() == six {
			n++
		}
	}
	if n == 0 {
		return nil
	}
	all := make([]addrRange, 0, n)
	for _, b := range blocks {
		switch {
		case b.CIDR.Addr().Is6() != six:
		case len(b.Except) == 0: // most have none
			all = append(all, addrRange{b.CIDR.Masked().Addr(), lastOf(b.CIDR)})
		default:
			all = append(all, subtractExcept(*b)...)
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

// mergeRanges returns the union of ranges of one family: sorted, without adjacent ones. It reuses the slice.
func mergeRanges(in []addrRange) []addrRange {
	byFirst := func(a, b addrRange) int { return a.first.Compare(b.first) }
	if !slices.IsSortedFunc(in, byFirst) {
		slices.SortFunc(in, byFirst)
	}
	out := in[:0]
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
	first := p.Masked().Addr()
	b, from := first.As16(), p.Bits()
	if first.Is4() {
		from += 96
	}
	for i := from / 8; i < len(b); i++ {
		b[i] |= 0xff >> max(0, from-8*i)
	}
	if first.Is4() {
		return netip.AddrFrom4([4]byte(b[12:]))
	}
	return netip.AddrFrom16(b)
}

// addrRange is a range of addresses of one family, both ends included.
type addrRange struct{ first, last netip.Addr }

func (r addrRange) contains(a netip.Addr) bool {
	return a.BitLen() == r.first.BitLen() && r.first.Compare(a) <= 0 && a.Compare(r.last) <= 0
}

// prefix returns the range as a prefix, if it is one: the ends begin with the same bits, and then one has only zeros and
// the other only ones.
func (r addrRange) prefix() (netip.Prefix, bool) {
	first, last := r.first.As16(), r.last.As16()
	common := 0
	for common < 128 && (first[common/8]^last[common/8])>>(7-common%8)&1 == 0 {
		if common%8 == 0 && first[common/8] == last[common/8] {
			common += 8
		} else {
			common++
		}
	}
	if r.first.Is4() {
		common -= 96
	}
	p := netip.PrefixFrom(r.first, common)
	return p, p.Masked().Addr() == r.first && lastOf(p) == r.last
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
