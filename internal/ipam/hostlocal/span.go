// SPDX-License-Identifier: Apache-2.0

package hostlocal

import (
	"net/netip"
	"strconv"

	"github.com/weft-net/weft/internal/ipam"
)

// spanConf is a range in a configuration.
type spanConf struct {
	Subnet     string `json:"subnet"`
	RangeStart string `json:"rangeStart"`
	RangeEnd   string `json:"rangeEnd"`
	Gateway    string `json:"gateway"`
}

// span is a range of addresses of one subnet, both ends included.
type span struct {
	subnet     netip.Prefix
	start, end netip.Addr
	gateway    netip.Addr
}

// readSpan validates a range and sets defaults: the gateway is the first address, the range goes from the first to the
// last one.
func readSpan(name string, c spanConf) (span, error) {
	var s span
	var err error
	if c.Subnet == "" {
		return s, ipam.Invalid(`for example "10.1.0.0/24"`, "%s.subnet is missing", name)
	}
	if s.subnet, err = netip.ParsePrefix(c.Subnet); err != nil {
		return s, ipam.Invalid(`for example "10.1.0.0/24"`, "%s.subnet %q: %w", name, c.Subnet, err)
	}
	if s.subnet.Addr().Is4In6() {
		return s, ipam.Invalid("write it as IPv4", "%s.subnet %q is an IPv4 address in IPv6 form", name, c.Subnet)
	}
	if s.subnet != s.subnet.Masked() {
		return s, ipam.Invalid("write "+s.subnet.Masked().String(), "%s.subnet %s has host bits set", name, c.Subnet)
	}
	if most := s.subnet.Addr().BitLen() - 2; s.subnet.Bits() > most {
		return s, ipam.Invalid("use /"+strconv.Itoa(most)+" or larger", "%s.subnet %s is too small to allocate from",
			name, c.Subnet)
	}
	first, last := s.subnet.Addr().Next(), lastOf(s.subnet)
	if s.gateway, err = optional(name+".gateway", c.Gateway, first); err != nil {
		return s, err
	}
	if s.gateway.Is4() != first.Is4() {
		return s, ipam.Invalid("leave it out, or use an address of the subnet",
			"%s.gateway %s is not of the family of subnet %s", name, c.Gateway, c.Subnet)
	}
	if s.start, err = optional(name+".rangeStart", c.RangeStart, first); err != nil {
		return s, err
	}
	if s.end, err = optional(name+".rangeEnd", c.RangeEnd, last); err != nil {
		return s, err
	}
	if !s.subnet.Contains(s.start) {
		return s, ipam.Invalid("leave it out, or use an address of the subnet", "%s.rangeStart %s is not in subnet %s", name,
			s.start, c.Subnet)
	}
	if !s.subnet.Contains(s.end) || s.end.Less(s.start) {
		return s, ipam.Invalid("leave it out, or choose one there",
			"%s.rangeEnd %s is not between rangeStart %s and the end of subnet %s", name, s.end, s.start, c.Subnet)
	}
	if s.start == s.end && !s.usable(s.start) {
		return s, ipam.Invalid("widen it, or choose another gateway",
			"%s: the only address %s of the range is the gateway's or the network's own", name, s.start)
	}
	return s, nil
}

func optional(name, value string, otherwise netip.Addr) (netip.Addr, error) {
	if value == "" {
		return otherwise, nil
	}
	a, err := netip.ParseAddr(value)
	if err != nil {
		return a, ipam.Invalid("an address, for example 10.1.0.5", "%s %q: %w", name, value, err)
	}
	return a.Unmap(), nil
}

// lastOf returns the last address that a host can have: the one before the broadcast address, for IPv6 the last.
func lastOf(p netip.Prefix) netip.Addr {
	b := p.Addr().AsSlice()
	for bit := p.Bits(); bit < len(b)*8; bit++ {
		b[bit/8] |= 0x80 >> (bit % 8)
	}
	last, _ := netip.AddrFromSlice(b)
	if last.Is4() {
		return last.Prev()
	}
	return last
}

func (s span) contains(a netip.Addr) bool {
	return s.subnet.Contains(a) && !a.Less(s.start) && !s.end.Less(a)
}

func (s span) overlaps(o span) bool {
	return s.start.Is4() == o.start.Is4() && !s.end.Less(o.start) && !o.end.Less(s.start)
}

// usable reports whether a host can have the address: it is not the network's, the broadcast or the gateway's address.
func (s span) usable(a netip.Addr) bool {
	if a == s.gateway || a == s.subnet.Addr() {
		return false
	}
	return !a.Is4() || a != lastOf(s.subnet).Next()
}

// String is "start-end".
func (s span) String() string { return s.start.String() + "-" + s.end.String() }
