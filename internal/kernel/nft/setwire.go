// SPDX-License-Identifier: Apache-2.0

package nft

import (
	"bytes"
	"encoding/binary"

	"golang.org/x/sys/unix"

	"github.com/weft-net/weft/internal/kernel/netlink"
	"github.com/weft-net/weft/internal/kernel/nft/lang"
)

// setConcat marks a set whose key is a concatenation of ranges (NFT_SET_CONCAT).
const setConcat = 0x80

// Attributes that x/sys does not name.
const (
	setKeyType, setKeyLen, setDataType, setDataLen = 4, 5, 6, 7
	setDescSize, setDescConcat                     = 1, 2
	elemKeyEnd                                     = 10
	verdictType                                    = 0xffffff00
)

// Flags of a dynamic set, whose elements expire (NFT_SET_TIMEOUT, NFT_SET_EVAL).
const setTimeout, setEval = 0x10, 0x20

// putSet writes the message that makes the set.
func (b *batch) putSet(t *table, s lang.Set, id uint32) {
	b.message(unix.NFT_MSG_NEWSET, unix.NLM_F_CREATE, t.Family, "make set "+s.Name)
	b.String(unix.NFTA_SET_TABLE, t.Name)
	b.String(unix.NFTA_SET_NAME, s.Name)
	var flags uint32
	if s.Interval {
		flags |= unix.NFT_SET_INTERVAL
	}
	if s.ConcatRanges() {
		flags |= setConcat
	}
	if s.IsMap {
		flags |= unix.NFT_SET_MAP
	}
	if s.DynamicSize > 0 {
		flags |= setTimeout | setEval
	}
	b.BE32(unix.NFTA_SET_FLAGS, flags)
	b.BE32(setKeyType, lang.TypesID(s.Key))
	b.BE32(setKeyLen, uint32(lang.TypesSize(s.Key)))
	switch {
	case s.Verdicts:
		b.BE32(setDataType, verdictType)
		b.BE32(setDataLen, 16)
	case s.IsMap:
		b.BE32(setDataType, lang.TypesID(s.Data))
		b.BE32(setDataLen, uint32(lang.TypesSize(s.Data)))
	}
	b.BE32(unix.NFTA_SET_ID, id)
	if s.ConcatRanges() {
		desc := b.Begin(unix.NFTA_SET_DESC | nested)
		concat := b.Begin(setDescConcat | nested)
		for _, t := range s.Key {
			field := b.Begin(1 | nested)
			b.BE32(1, uint32(t.Size))
			b.End(field)
		}
		b.End(concat)
		b.End(desc)
	}
	if s.DynamicSize > 0 {
		b.putDynamicSize(s)
	}
	b.Attr(unix.NFTA_SET_USERDATA, userdata(s))
}

// putDynamicSize adds the size of a dynamic set.
func (b *batch) putDynamicSize(s lang.Set) {
	desc := b.Begin(unix.NFTA_SET_DESC | nested)
	b.BE32(setDescSize, uint32(s.DynamicSize))
	b.End(desc)
}

// userdata encodes the byte order of numbers for nft, which the kernel does not need.
func userdata(s lang.Set) []byte {
	order := func(kind byte, ts []lang.Type) []byte {
		v := uint32(2) // network
		if len(ts) == 1 && ts[0].HostOrder {
			v = 1
		}
		return binary.NativeEndian.AppendUint32([]byte{kind, 4}, v)
	}
	u := order(0, s.Key)
	if len(s.Data) > 0 {
		u = append(u, order(1, s.Data)...)
	}
	return u
}

// decodeSet decodes a NFT_MSG_NEWSET.
func decodeSet(body []byte) (s lang.Set, tableName string, anonymous bool) {
	var keyType, dataType, flags, size uint32
	for typ, v := range netlink.Attrs(body) {
		switch typ {
		case unix.NFTA_SET_TABLE:
			tableName = netlink.String(v)
		case unix.NFTA_SET_NAME:
			s.Name = netlink.String(v)
		case unix.NFTA_SET_FLAGS:
			flags = netlink.BE32(v)
		case unix.NFTA_SET_DESC:
			size = netlink.BE32(netlink.Find(v, setDescSize))
		case setKeyType:
			keyType = netlink.BE32(v)
		case setDataType:
			dataType = netlink.BE32(v)
		}
	}
	s.Interval = flags&unix.NFT_SET_INTERVAL != 0
	s.IsMap = flags&unix.NFT_SET_MAP != 0
	s.Verdicts = s.IsMap && dataType == verdictType
	const learning = setTimeout | setEval
	if flags&learning == learning {
		s.DynamicSize, flags = int(size), flags&^learning
	}
	s.Opaque = flags&^(unix.NFT_SET_INTERVAL|unix.NFT_SET_MAP|setConcat) != 0
	var err error
	if s.Key, err = lang.TypesByID(keyType); err != nil {
		s.Opaque = true
	}
	if s.IsMap && !s.Verdicts {
		if s.Data, err = lang.TypesByID(dataType); err != nil {
			s.Opaque = true
		}
	}
	return s, tableName, flags&unix.NFT_SET_ANONYMOUS != 0
}

// successor returns the key after b, nil after the last one.
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
