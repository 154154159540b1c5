// SPDX-License-Identifier: Apache-2.0

package policy

import (
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

// elements notes elements of a set that go and come.
func elements(c *state.TableChange, head state.Set, gone, came []state.Element) {
	if len(gone) > 0 {
		head.Elements = gone
		c.DropElements = append(c.DropElements, head)
	}
	if len(came) > 0 {
		head.Elements = came
		c.AddElements = append(c.AddElements, head)
	}
}

// lacking are the elements of a that are not in b.
func lacking(a, b []state.Element) []state.Element {
	in := map[string]bool{}
	for _, e := range b {
		in[strings.Join(e.Key, " . ")] = true
	}
	var out []state.Element
	for _, e := range a {
		if !in[strings.Join(e.Key, " . ")] {
			out = append(out, e)
		}
	}
	return out
}
