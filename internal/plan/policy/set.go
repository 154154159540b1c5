// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"slices"
	"strconv"
	"strings"

	"github.com/weft-net/weft/internal/state"
)

// setSpec is the definition of a set: one of group, ranges, ports, pairs and links.
type setSpec struct {
	name   string
	six    bool // of a group or ranges: the IPv6 addresses
	group  *groupSpec
	ranges []addrRange
	ports  []portRange
	pairs  []element // addresses with ports
	links  *[]string // names of interfaces, sorted
}

// hasAddress reports whether an element is an address with a port.
func (s *setSpec) hasAddress() bool { return s.pairs != nil || s.group != nil && s.group.port != nil }

// hasFamily reports whether its elements are addresses of one family.
func (s *setSpec) hasFamily() bool { return s.ports == nil && s.links == nil }

// definition returns the set without its elements.
func (s *setSpec) definition() state.Set {
	addr := "ipv4_addr"
	if s.six {
		addr = "ipv6_addr"
	}
	switch {
	case s.links != nil:
		return state.Set{Name: s.name, Key: "ifname"}
	case s.ports != nil:
		return state.Set{Name: s.name, Key: "inet_proto . inet_service", Interval: hasRange(s.ports)}
	case s.group == nil && s.pairs == nil:
		return state.Set{Name: s.name, Key: addr, Interval: true}
	case s.hasAddress():
		return state.Set{Name: s.name, Key: addr + " . inet_proto . inet_service"}
	}
	return state.Set{Name: s.name, Key: addr}
}

// staticElements returns the nft elements of ipBlock ranges and ports.
func (s *setSpec) staticElements() []state.Element {
	var out []state.Element
	for _, r := range s.ranges {
		out = append(out, state.Element{Key: []string{r.String()}})
	}
	for _, p := range s.ports {
		out = append(out, state.Element{Key: []string{nftProtocol(p.protocol), p.String()}})
	}
	for _, e := range s.pairs {
		out = append(out, s.element(e))
	}
	if s.links != nil {
		for _, l := range *s.links {
			out = append(out, state.Element{Key: []string{`"` + l + `"`}})
		}
	}
	return out
}

// without returns the elements of ipBlock ranges and ports that another set does not have. There may be thousands of
// ranges, and few differ.
func (s *setSpec) without(o *setSpec) []state.Element {
	rest, i := setSpec{}, 0
	for _, r := range s.ranges { // both are sorted
		for i < len(o.ranges) && o.ranges[i].first.Compare(r.first) < 0 {
			i++
		}
		if i == len(o.ranges) || o.ranges[i] != r {
			rest.ranges = append(rest.ranges, r)
		}
	}
	for _, p := range s.ports {
		if !slices.Contains(o.ports, p) {
			rest.ports = append(rest.ports, p)
		}
	}
	for _, e := range s.pairs {
		if !slices.Contains(o.pairs, e) {
			rest.pairs = append(rest.pairs, e)
		}
	}
	if s.links != nil {
		more := slices.DeleteFunc(slices.Clone(*s.links), func(l string) bool { return slices.Contains(*o.links, l) })
		rest.links = &more
	}
	return rest.staticElements()
}

// element returns the nft element for an element of the set's group.
func (s *setSpec) element(e element) state.Element {
	key := []string{e.addr.String()}
	if s.hasAddress() {
		key = append(key, nftProtocol(e.protocol), strconv.Itoa(int(e.port)))
	}
	return state.Element{Key: key}
}

// matchesFamily reports whether an element of the group belongs to this set rather than to the one of the other family.
func (s *setSpec) matchesFamily(e element) bool { return e.addr.Is6() == s.six }

// elements adds removed and added elements of a set to the change.
func elements(c *state.TableChange, definition state.Set, gone, came []state.Element) {
	if len(gone) > 0 {
		definition.Elements = gone
		c.DeleteElements = append(c.DeleteElements, definition)
	}
	if len(came) > 0 {
		definition.Elements = came
		c.AddElements = append(c.AddElements, definition)
	}
}

// missingElements returns the elements of a that are not in b.
func missingElements(a, b []state.Element) []state.Element {
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
