// SPDX-License-Identifier: Apache-2.0

package bgp

import (
	"net/netip"

	"github.com/weft-net/weft/internal/model"
)

// rules returns the rules of filters for a session.
func rules(all []model.BGPFilterRule, internal bool) []Rule {
	var out []Rule
	for _, r := range all {
		if r.PeerType == "iBGP" && !internal || r.PeerType == "eBGP" && internal {
			continue
		}
		ranges := rangesOf(r)
		if len(ranges) == 0 { // the bounds of its lengths contradict it
			continue
		}
		out = append(out, Rule{
			Ranges: ranges, Remote: r.Remote, Communities: r.Communities, ASPathPrefix: r.ASPathPrefix, Accept: r.Accept,
			AddCommunities: r.AddCommunities, Prepend: r.Prepend,
		})
	}
	return out
}

// refuseAll are the rules of a filter that cannot be read.
func refuseAll() []Rule {
	return []Rule{{Ranges: []Range{within(everything(false)), within(everything(true))}}}
}

func everything(six bool) netip.Prefix {
	if six {
		return netip.PrefixFrom(netip.IPv6Unspecified(), 0)
	}
	return netip.PrefixFrom(netip.IPv4Unspecified(), 0)
}

// rangesOf returns the prefixes with which a rule agrees.
func rangesOf(r model.BGPFilterRule) []Range {
	all := everything(r.Six)
	bits := all.Addr().BitLen()
	least, most := 0, bits
	if r.MinLength >= 0 {
		least = r.MinLength
	}
	if r.MaxLength >= 0 {
		most = r.MaxLength
	}
	var wanted []Range
	switch r.Match {
	case "":
		wanted = []Range{within(all)}
	case "Equal":
		wanted = []Range{exactly(r.CIDR)}
	case "In":
		wanted = []Range{within(r.CIDR)}
	case "NotIn":
		wanted = outside(r.CIDR)
	case "NotEqual":
		wanted = outside(r.CIDR)
		if r.CIDR.Bits() < bits {
			for _, half := range halves(r.CIDR) {
				wanted = append(wanted, within(half))
			}
		}
	}
	var out []Range
	for _, w := range wanted {
		w.Min, w.Max = max(w.Min, least), min(w.Max, most)
		if w.Min <= w.Max {
			out = append(out, w)
		}
	}
	return out
}

// outside returns all prefixes that are not within one: at each length those that contain it, and what is within the
// other half of each of these.
func outside(p netip.Prefix) []Range {
	var out []Range
	for bits := range p.Bits() {
		above := netip.PrefixFrom(p.Addr(), bits).Masked()
		out = append(out, exactly(above))
		for _, half := range halves(above) {
			if !half.Contains(p.Addr()) {
				out = append(out, within(half))
			}
		}
	}
	return out
}

// halves returns the two halves of a prefix, which is longer than an address's.
func halves(p netip.Prefix) [2]netip.Prefix {
	p = p.Masked()
	b := p.Addr().AsSlice()
	b[p.Bits()/8] |= 0x80 >> (p.Bits() % 8)
	high, _ := netip.AddrFromSlice(b)
	return [2]netip.Prefix{netip.PrefixFrom(p.Addr(), p.Bits()+1), netip.PrefixFrom(high, p.Bits()+1)}
}
