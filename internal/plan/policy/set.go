// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"crypto/sha256"
	"encoding/hex"
	"net/netip"
	"strconv"
	"strings"

	"github.com/weft-net/weft/internal/state"
)

// setSpec says what is in a set of a table: one of group, ranges and ports.
type setSpec struct {
	name   string
	six    bool // of a group or ranges: the IPv6 addresses
	group  *groupSpec
	ranges []addrRange
	ports  []portRange
}

// head is the set without its elements.
func (s *setSpec) head() state.Set {
	addr := "ipv4_addr"
	if s.six {
		addr = "ipv6_addr"
	}
	switch {
	case s.ports != nil:
		return state.Set{Name: s.name, Key: "inet_proto . inet_service", Interval: hasRange(s.ports)}
	case s.group == nil:
		return state.Set{Name: s.name, Key: addr, Interval: true}
	case s.group.port != nil:
		return state.Set{Name: s.name, Key: addr + " . inet_proto . inet_service"}
	}
	return state.Set{Name: s.name, Key: addr}
}

// fixed are the elements of a set that is no group's.
func (s *setSpec) fixed() []state.Element {
	var out []state.Element
	for _, r := range s.ranges {
		out = append(out, state.Element{Key: []string{r.String()}})
	}
	for _, p := range s.ports {
		out = append(out, state.Element{Key: []string{nftProto(p.protocol), p.String()}})
	}
	return out
}

// words is an element of the set's group.
func (s *setSpec) words(e element) state.Element {
	key := []string{e.addr.String()}
	if s.group.port != nil {
		key = append(key, nftProto(e.protocol), strconv.Itoa(int(e.port)))
	}
	return state.Element{Key: key}
}

// takes tells whether an element of the group belongs to this set rather than to the one of the other family.
func (s *setSpec) takes(e element) bool { return e.addr.Is6() == s.six }

// short is a name for something that has a long one.
func short(parts ...string) string {
	sum := sha256.Sum256([]byte(strings.Join(parts, "\x00")))
	return hex.EncodeToString(sum[:8])
}

// family is "4" or "6".
func family(six bool) string {
	if six {
		return "6"
	}
	return "4"
}

// ip is how nft calls the family.
func ip(six bool) string {
	if six {
		return "ip6"
	}
	return "ip"
}

// addrRange is a range of addresses of one family; both ends are inside.
type addrRange struct{ first, last netip.Addr }

func (r addrRange) contains(a netip.Addr) bool {
	return a.BitLen() == r.first.BitLen() && r.first.Compare(a) <= 0 && a.Compare(r.last) <= 0
}

// prefix is the range as a prefix, if it is one.
func (r addrRange) prefix() (netip.Prefix, bool) {
	for bits := range r.first.BitLen() + 1 {
		if p := netip.PrefixFrom(r.first, bits); p.Masked().Addr() == r.first && lastOf(p) == r.last {
			return p, true
		}
	}
	return netip.Prefix{}, false
}

// String is the range as nft writes it.
func (r addrRange) String() string {
	switch p, ok := r.prefix(); {
	case r.first == r.last:
		return r.first.String()
	case ok:
		return p.String()
	}
	return r.first.String() + "-" + r.last.String()
}
