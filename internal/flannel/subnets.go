// SPDX-License-Identifier: Apache-2.0

package flannel

import (
	"math/big"
	"net/netip"

	"github.com/weft-net/weft/internal/model"
)

// mostFree is the number of free subnets that one is chosen from. Nodes that start together seldom choose the same one,
// and a large network is not searched to its end.
const mostFree = 100

// Range is the subnets of one family that may be leased: First, First + one subnet, … Last.
type Range struct {
	Network     netip.Prefix
	First, Last netip.Addr
	Len         int
}

// Ranges returns the subnets to choose from, with flannel's defaults: a subnet has 24 bits (IPv6: 64), two more than a
// network that is too small for that; the first one is left out.
func (c NetConf) Ranges() (v4, v6 Range, err error) {
	if c.EnableIPv4 {
		v4, err = newRange("", c.Network, c.SubnetLen, 24, c.SubnetMin, c.SubnetMax)
	}
	if c.EnableIPv6 && err == nil {
		v6, err = newRange("IPv6", c.IPv6Network, c.IPv6SubnetLen, 64, c.IPv6SubnetMin, c.IPv6SubnetMax)
	}
	return v4, v6, err
}

func newRange(family string, network netip.Prefix, length, usual int, first, last netip.Addr) (Range, error) {
	r := Range{Network: network, First: first, Last: last, Len: length}
	name := family + "Network"
	bits := network.Addr().BitLen()
	if r.Len == 0 {
		if network.Bits() > bits-4 {
			return r, model.Errorf(model.CodeInvalidConf, "four subnets of four addresses are the least", "%s %s is too small",
				name, network)
		}
		if r.Len = usual; network.Bits() > usual-2 {
			r.Len = network.Bits() + 2
		}
	}
	if r.Len > bits-2 {
		return r, model.Errorf(model.CodeInvalidConf, "a subnet has four addresses at least", "%sSubnetLen %d is too long",
			family, r.Len)
	}
	if r.Len < network.Bits()+2 {
		return r, model.Errorf(model.CodeInvalidConf, "four subnets must fit into the network",
			"%sSubnetLen %d is too short for %s %s", family, r.Len, name, network)
	}
	if !r.First.IsValid() {
		r.First = step(network.Addr(), r.Len, 1)
	}
	if !r.Last.IsValid() {
		r.Last = lastSubnet(network, r.Len)
	}
	for _, limit := range []struct {
		name string
		addr netip.Addr
	}{{family + "SubnetMin", r.First}, {family + "SubnetMax", r.Last}} {
		if !network.Contains(limit.addr) {
			return r, model.Errorf(model.CodeInvalidConf, "choose one inside, or leave it out", "%s %s is not in %s %s",
				limit.name, limit.addr, name, network)
		}
		if p := netip.PrefixFrom(limit.addr, r.Len); p != p.Masked() {
			return r, model.Errorf(model.CodeInvalidConf, "write "+p.Masked().Addr().String(),
				"%s %s is no multiple of a subnet of length %d", limit.name, limit.addr, r.Len)
		}
	}
	if r.Last.Less(r.First) {
		return r, model.Errorf(model.CodeInvalidConf, "exchange them", "%sSubnetMax %s is before %sSubnetMin %s", family,
			r.Last, family, r.First)
	}
	return r, nil
}

// step returns the address n subnets later; the invalid address is past the end of all addresses.
func step(a netip.Addr, length int, n int64) netip.Addr {
	raw := a.AsSlice()
	size := new(big.Int).Lsh(big.NewInt(n), uint(a.BitLen()-length))
	sum := size.Add(size, new(big.Int).SetBytes(raw))
	if sum.BitLen() > a.BitLen() {
		return netip.Addr{}
	}
	next, _ := netip.AddrFromSlice(sum.FillBytes(raw))
	return next
}

func lastSubnet(network netip.Prefix, length int) netip.Addr {
	raw := network.Addr().AsSlice()
	for bit := network.Bits(); bit < length; bit++ {
		raw[bit/8] |= 0x80 >> (bit % 8)
	}
	last, _ := netip.AddrFromSlice(raw)
	return last
}

// Holds reports whether a subnet is one of the range.
func (r Range) Holds(p netip.Prefix) bool {
	if !r.Network.IsValid() {
		return !p.IsValid()
	}
	return p.IsValid() && p.Bits() == r.Len && p == p.Masked() && p.Addr().BitLen() == r.First.BitLen() &&
		!p.Addr().Less(r.First) && !r.Last.Less(p.Addr())
}

// Free returns the first hundred subnets that do not overlap a leased one.
func (r Range) Free(taken []netip.Prefix) []netip.Prefix {
	var out []netip.Prefix
	if !r.Network.IsValid() {
		return nil
	}
	used := map[netip.Prefix]bool{} // of a subnet's length: looked up instead of compared
	var wider []netip.Prefix
	for _, t := range taken {
		if t.Bits() >= r.Len {
			t = netip.PrefixFrom(t.Addr(), r.Len).Masked()
			used[t] = true
		} else {
			wider = append(wider, t)
		}
	}
next:
	for a := r.First; a.IsValid() && !r.Last.Less(a) && len(out) < mostFree; a = step(a, r.Len, 1) {
		p := netip.PrefixFrom(a, r.Len)
		if used[p] {
			continue
		}
		for _, t := range wider {
			if t.Overlaps(p) {
				continue next
			}
		}
		out = append(out, p)
	}
	return out
}
