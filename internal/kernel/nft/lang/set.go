// SPDX-License-Identifier: Apache-2.0

package lang

import (
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/weft-net/weft/internal/state"
)

// Set is a compiled set or map.
type Set struct {
	Name        string
	Key, Data   []Type
	IsMap       bool
	Verdicts    bool
	Interval    bool
	DynamicSize int
	// Opaque marks a set that weft cannot have made (other flags, unknown types).
	Opaque bool
	// Exclusive and Owned are those of state.Set.
	Exclusive string
	Owned     bool
	Elements  []Element
	Source    state.Set // as in the plan
}

// CompileSet compiles a set, without its elements. Errors name the unknown word.
func CompileSet(in state.Set) (Set, error) {
	s := Set{
		Name:        in.Name,
		Interval:    in.Interval,
		IsMap:       in.Data != "",
		Verdicts:    in.Data == "verdict",
		DynamicSize: in.DynamicSize,
	}
	s.Source = state.Set{Key: in.Key, Data: in.Data, Interval: in.Interval, DynamicSize: in.DynamicSize}
	s.Exclusive, s.Owned = in.Exclusive, in.Owned
	if err := checkName(in.Name); err != nil {
		return s, err
	}
	if in.DynamicSize < 0 || in.DynamicSize > 0 && (in.Data != "" || in.Interval) {
		return s, errors.New("a set that rules add to is no map, has no ranges, and has a size")
	}
	if in.DynamicSize > math.MaxUint32 {
		return s, fmt.Errorf("a set has room for %d elements, not for %d", math.MaxUint32, in.DynamicSize)
	}
	var err error
	if s.Key, err = parseTypes(in.Key); err != nil {
		return s, err
	}
	if s.IsMap && !s.Verdicts {
		if s.Data, err = parseTypes(in.Data); err != nil {
			return s, err
		}
	}
	s.Elements = make([]Element, 0, len(in.Elements))
	for _, e := range in.Elements {
		c, err := s.CompileElement(e)
		if err != nil {
			return s, err
		}
		s.Elements = append(s.Elements, c)
	}
	slices.SortFunc(s.Elements, CompareElements)
	for i := 1; i < len(s.Elements); i++ {
		if CompareElements(s.Elements[i-1], s.Elements[i]) == 0 {
			if !s.Elements[i].SameValue(s.Elements[i-1]) {
				return s, fmt.Errorf("element %v is listed twice with different values", s.State(s.Elements[i]).Key)
			}
		}
	}
	s.Elements = slices.CompactFunc(s.Elements, func(a, b Element) bool { return CompareElements(a, b) == 0 })
	return s, nil
}

// SameHead reports whether two sets differ only in their elements.
func (s Set) SameHead(o Set) bool {
	return s.Name == o.Name && !s.Opaque && !o.Opaque && s.Interval == o.Interval && s.DynamicSize == o.DynamicSize &&
		s.IsMap == o.IsMap &&
		s.Verdicts == o.Verdicts && slices.Equal(s.Key, o.Key) && slices.Equal(s.Data, o.Data)
}

func (s Set) head() state.Set {
	out := state.Set{
		Name: s.Name, Key: typesString(s.Key), Data: typesString(s.Data), Interval: s.Interval, DynamicSize: s.DynamicSize,
	}
	if s.Verdicts {
		out.Data = "verdict"
	}
	if s.Opaque {
		out.Key = "unknown"
	}
	return out
}

// ConcatRanges reports whether keys have several fields, each of which may be a range.
func (s Set) ConcatRanges() bool { return s.Interval && len(s.Key) > 1 }

var errUnknownType = errors.New("unknown type")

// TypesByID is the inverse of typesMagic.
func TypesByID(magic uint32) ([]Type, error) {
	var ts []Type
	for ; magic != 0; magic >>= 6 {
		t, err := typeByID(magic & 63)
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

func typeByID(magic uint32) (Type, error) {
	for _, name := range []string{
		"nf_proto", "ipv4_addr", "ipv6_addr", "ether_addr", "inet_proto", "inet_service", "mark", "ct_state", "ct_status",
		"fib_addrtype", "ifname", "icmp_type", "icmpv6_type", "ct_dir",
	} {
		if t, err := typeByName(name); err == nil && t.id == magic {
			return t, nil
		}
	}
	return Type{}, errUnknownType
}
