// SPDX-License-Identifier: Apache-2.0

package nft

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/weft-net/weft/internal/state"
)

// setConcat marks a set whose key is a concatenation of ranges (NFT_SET_CONCAT).
const setConcat = 0x80

// Attributes that x/sys does not name.
const (
	setKeyType, setKeyLen, setDataType, setDataLen = 4, 5, 6, 7
	setDescConcat                                  = 2
	elemKeyEnd                                     = 10
	verdictType                                    = 0xffffff00
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

// putSet writes the message that makes the set.
func (b *batch) putSet(t *table, s set, id uint32) {
	b.message(unix.NFT_MSG_NEWSET, unix.NLM_F_CREATE, t.family, "make set "+s.name)
	b.str(unix.NFTA_SET_TABLE, t.name)
	b.str(unix.NFTA_SET_NAME, s.name)
	var flags uint32
	if s.interval {
		flags |= unix.NFT_SET_INTERVAL
	}
	if s.concatRanges() {
		flags |= setConcat
	}
	if s.isMap {
		flags |= unix.NFT_SET_MAP
	}
	if s.learns > 0 {
		flags |= setTimeout | setEval
	}
	b.u32(unix.NFTA_SET_FLAGS, flags)
	b.u32(setKeyType, typesMagic(s.key))
	b.u32(setKeyLen, uint32(typesSize(s.key)))
	switch {
	case s.verdicts:
		b.u32(setDataType, verdictType)
		b.u32(setDataLen, 16)
	case s.isMap:
		b.u32(setDataType, typesMagic(s.data))
		b.u32(setDataLen, uint32(typesSize(s.data)))
	}
	b.u32(unix.NFTA_SET_ID, id)
	if s.concatRanges() {
		desc := b.nest(unix.NFTA_SET_DESC)
		concat := b.nest(setDescConcat)
		for _, t := range s.key {
			field := b.nest(1)
			b.u32(1, uint32(t.size))
			b.end(field)
		}
		b.end(concat)
		b.end(desc)
	}
	if s.learns > 0 {
		b.putLearning(s)
	}
	b.attr(unix.NFTA_SET_USERDATA, s.userdata())
}

// userdata tells nft the byte order of numbers, which the kernel does not care about.
func (s set) userdata() []byte {
	order := func(kind byte, ts []datatype) []byte {
		v := uint32(2) // network
		if len(ts) == 1 && ts[0].host {
			v = 1
		}
		return binary.NativeEndian.AppendUint32([]byte{kind, 4}, v)
	}
	u := order(0, s.key)
	if len(s.data) > 0 {
		u = append(u, order(1, s.data)...)
	}
	return u
}

// decodeSet reads what a NFT_MSG_NEWSET says.
func decodeSet(body []byte) (s set, tableName string, anonymous bool) {
	var keyType, dataType, flags, size uint32
	for typ, v := range attrs(body) {
		switch typ {
		case unix.NFTA_SET_TABLE:
			tableName = cstr(v)
		case unix.NFTA_SET_NAME:
			s.name = cstr(v)
		case unix.NFTA_SET_FLAGS:
			flags = beU32(v)
		case unix.NFTA_SET_DESC:
			size = beU32(findAttr(v, setDescSize))
		case setKeyType:
			keyType = beU32(v)
		case setDataType:
			dataType = beU32(v)
		}
	}
	s.interval = flags&unix.NFT_SET_INTERVAL != 0
	s.isMap = flags&unix.NFT_SET_MAP != 0
	s.verdicts = s.isMap && dataType == verdictType
	const learning = setTimeout | setEval
	if flags&learning == learning {
		s.learns, flags = int(size), flags&^learning
	}
	s.opaque = flags&^(unix.NFT_SET_INTERVAL|unix.NFT_SET_MAP|setConcat) != 0
	var err error
	if s.key, err = typesOf(keyType); err != nil {
		s.opaque = true
	}
	if s.isMap && !s.verdicts {
		if s.data, err = typesOf(dataType); err != nil {
			s.opaque = true
		}
	}
	return s, tableName, flags&unix.NFT_SET_ANONYMOUS != 0
}

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

// successor is the key behind b, nil behind the last one.
func successor(b []byte) []byte {
	b = bytes.Clone(b)
	for i := len(b) - 1; i >= 0; i-- {
		b[i]++
		if b[i] != 0 {
			return b
		}
	}
	return nil
}

func predecessor(b []byte) []byte {
	b = bytes.Clone(b)
	for i := len(b) - 1; i >= 0; i-- {
		b[i]--
		if b[i] != 0xff {
			break
		}
	}
	return b
}
