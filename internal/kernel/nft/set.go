// SPDX-License-Identifier: Apache-2.0

package nft

import (
	"errors"
	"fmt"
	"slices"

	"github.com/weft-net/weft/internal/state"
)

// set is the compiled head of a set or map.
type set struct {
	name      string
	key, data []datatype
	isMap     bool
	verdicts  bool
	interval  bool
	learns    int
	// opaque is set for a set that weft cannot have made (other flags, unknown types).
	opaque bool
	// exclusive and owned are state.Set's.
	exclusive string
	owned     bool
	elems     []elem
	given     state.Set // as the plan said it
}

func compileSet(in state.Set) (set, error) {
	s := set{name: in.Name, interval: in.Interval, isMap: in.Data != "", verdicts: in.Data == "verdict", learns: in.Learns}
	s.given = state.Set{Key: in.Key, Data: in.Data, Interval: in.Interval, Learns: in.Learns}
	s.exclusive, s.owned = in.Exclusive, in.Owned
	if err := checkName(in.Name); err != nil {
		return s, err
	}
	if in.Learns < 0 || in.Learns > 0 && (in.Data != "" || in.Interval) {
		return s, errors.New("a set that rules add to is no map, has no ranges, and has a size")
	}
	var err error
	if s.key, err = typesNamed(in.Key); err != nil {
		return s, err
	}
	if s.isMap && !s.verdicts {
		if s.data, err = typesNamed(in.Data); err != nil {
			return s, err
		}
	}
	s.elems = make([]elem, 0, len(in.Elements))
	for _, e := range in.Elements {
		c, err := s.compileElement(e)
		if err != nil {
			return s, err
		}
		s.elems = append(s.elems, c)
	}
	slices.SortFunc(s.elems, compareElems)
	for i := 1; i < len(s.elems); i++ {
		if compareElems(s.elems[i-1], s.elems[i]) == 0 {
			if !s.elems[i].sameValue(s.elems[i-1]) {
				return s, fmt.Errorf("element %v stands twice with different values", s.words(s.elems[i]).Key)
			}
		}
	}
	s.elems = slices.CompactFunc(s.elems, func(a, b elem) bool { return compareElems(a, b) == 0 })
	return s, nil
}

// sameHead tells whether two sets differ in nothing but elements.
func (s set) sameHead(o set) bool {
	return s.name == o.name && !s.opaque && !o.opaque && s.interval == o.interval && s.learns == o.learns && s.isMap == o.isMap &&
		s.verdicts == o.verdicts && slices.Equal(s.key, o.key) && slices.Equal(s.data, o.data)
}

func (s set) head() state.Set {
	out := state.Set{Name: s.name, Key: typesString(s.key), Data: typesString(s.data), Interval: s.interval, Learns: s.learns}
	if s.verdicts {
		out.Data = "verdict"
	}
	if s.opaque {
		out.Key = "unknown"
	}
	return out
}

func (s set) concatRanges() bool { return s.interval && len(s.key) > 1 }

var errUnknownType = errors.New("unknown type")

// typesOf is the inverse of typesMagic.
func typesOf(magic uint32) ([]datatype, error) {
	var ts []datatype
	for ; magic != 0; magic >>= 6 {
		t, err := typeNumbered(magic & 63)
		if err != nil {
			return nil, err
		}
		ts = append(ts, t)
	}
	slices.Reverse(ts)
	if len(ts) == 0 {
		return nil, errUnknownType
	}
	return ts, nil
}

func typeNumbered(magic uint32) (datatype, error) {
	for _, name := range []string{
		"nf_proto", "ipv4_addr", "ipv6_addr", "ether_addr", "inet_proto", "inet_service", "mark", "ct_state", "ct_status",
		"fib_addrtype", "ifname", "icmp_type", "icmpv6_type", "ct_dir",
	} {
		if t, err := typeNamed(name); err == nil && t.magic == magic {
			return t, nil
		}
	}
	return datatype{}, errUnknownType
}
