// SPDX-License-Identifier: Apache-2.0

package nft

import (
	"bytes"
	"encoding/binary"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/weft-net/weft/internal/kernel/netlink"
	"github.com/weft-net/weft/internal/kernel/nft/lang"
)

// maxElementBytes bounds the elements of one message: a nested attribute contains at most 64 KiB.
const maxElementBytes = 56 << 10

// putElements writes messages of kind typ (add or delete) for the elements.
func (b *batch) putElements(typ int, t *table, s lang.Set, elems []lang.Element, perMessage int) {
	flags, verb := uint16(unix.NLM_F_CREATE), "make"
	if s.Owned {
		flags |= unix.NLM_F_EXCL // an existing element may be another owner's
	}
	switch typ {
	case unix.NFT_MSG_DELSETELEM:
		flags, verb = 0, "delete"
	case unix.NFT_MSG_GETSETELEM:
		flags, verb = 0, "get"
	}
	for len(elems) > 0 {
		b.message(typ, flags, t.Family, verb+" elements of "+s.Name)
		b.String(unix.NFTA_SET_ELEM_LIST_TABLE, t.Name)
		b.String(unix.NFTA_SET_ELEM_LIST_SET, s.Name)
		list := b.Begin(unix.NFTA_SET_ELEM_LIST_ELEMENTS | nested)
		n := 0
		for n < len(elems) && n < perMessage && b.Size()-list < maxElementBytes {
			b.putElement(s, elems[n], typ == unix.NFT_MSG_NEWSETELEM)
			n++
		}
		b.End(list)
		elems = elems[n:]
	}
}

// putElement writes one element; a range in a set without concatenation is two, its beginning and its exclusive end.
func (b *batch) putElement(s lang.Set, e lang.Element, full bool) {
	item := b.Begin(1 | nested)
	b.putKey(unix.NFTA_SET_ELEM_KEY, e.Key)
	if s.ConcatRanges() {
		b.putKey(elemKeyEnd, e.KeyEnd)
	}
	if full {
		b.putValue(e)
	}
	b.End(item)
	if !s.Interval || s.ConcatRanges() {
		return
	}
	if end := successor(e.KeyEnd); end != nil {
		item := b.Begin(1 | nested)
		b.BE32(unix.NFTA_SET_ELEM_FLAGS, unix.NFT_SET_ELEM_INTERVAL_END)
		b.putKey(unix.NFTA_SET_ELEM_KEY, end)
		b.End(item)
	}
}

func (b *batch) putKey(typ uint16, key []byte) {
	n := b.Begin(typ | nested)
	b.Attr(unix.NFTA_DATA_VALUE, key)
	b.End(n)
}

func (b *batch) putValue(e lang.Element) {
	switch {
	case e.Verdict != nil:
		data := b.Begin(unix.NFTA_SET_ELEM_DATA | nested)
		v := b.Begin(unix.NFTA_DATA_VERDICT | nested)
		b.BE32(unix.NFTA_VERDICT_CODE, uint32(e.Verdict.Code))
		if e.Verdict.Chain != "" {
			b.String(unix.NFTA_VERDICT_CHAIN, e.Verdict.Chain)
		}
		b.End(v)
		b.End(data)
	case e.Data != nil:
		b.putKey(unix.NFTA_SET_ELEM_DATA, e.Data)
	}
	b.putStateful(e.Expr)
	if e.Comment != "" {
		b.Attr(unix.NFTA_SET_ELEM_USERDATA, comment(e.Comment))
	}
}

// comment encodes a comment as userdata of an element or a rule.
func comment(text string) []byte {
	return append(append([]byte{0, byte(len(text) + 1)}, text...), 0)
}

// commentIn decodes the comment in userdata.
func commentIn(u []byte) string {
	for len(u) >= 2 && len(u) >= 2+int(u[1]) {
		if u[0] == 0 {
			return netlink.String(u[2 : 2+int(u[1])])
		}
		u = u[2+int(u[1]):]
	}
	return ""
}

// rawElem is an element as the kernel sends it.
type rawElem struct {
	lang.Element
	end bool // the end of a range rather than its beginning
}

// appendElements decodes a NFT_MSG_NEWSETELEM.
func appendElements(out []rawElem, body []byte) []rawElem {
	for _, item := range netlink.Attrs(netlink.Find(body, unix.NFTA_SET_ELEM_LIST_ELEMENTS)) {
		var e rawElem
		for typ, v := range netlink.Attrs(item) {
			switch typ {
			case unix.NFTA_SET_ELEM_KEY:
				e.Key = bytes.Clone(netlink.Find(v, unix.NFTA_DATA_VALUE))
			case elemKeyEnd:
				e.KeyEnd = bytes.Clone(netlink.Find(v, unix.NFTA_DATA_VALUE))
			case unix.NFTA_SET_ELEM_FLAGS:
				e.end = netlink.BE32(v)&unix.NFT_SET_ELEM_INTERVAL_END != 0
			case unix.NFTA_SET_ELEM_DATA:
				e.Data, e.Verdict = decodeValue(v)
			case unix.NFTA_SET_ELEM_EXPR:
				kept := decodeExpr(v)
				e.Expr = &kept
			case unix.NFTA_SET_ELEM_USERDATA:
				e.Comment = commentIn(v)
			}
		}
		out = append(out, e)
	}
	return out
}

func decodeValue(v []byte) ([]byte, *lang.Verdict) {
	if nested := netlink.Find(v, unix.NFTA_DATA_VERDICT); nested != nil {
		code := netlink.Find(nested, unix.NFTA_VERDICT_CODE)
		if len(code) < 4 {
			return nil, nil
		}
		return nil, &lang.Verdict{
			Code:  int32(binary.BigEndian.Uint32(code)),
			Chain: netlink.String(netlink.Find(nested, unix.NFTA_VERDICT_CHAIN)),
		}
	}
	return bytes.Clone(netlink.Find(v, unix.NFTA_DATA_VALUE)), nil
}

// joinRanges converts the kernel's elements: in an interval set beginnings and ends are separate, in no defined order.
func joinRanges(s lang.Set, raw []rawElem) []lang.Element {
	if !s.Interval || s.ConcatRanges() {
		out := make([]lang.Element, 0, len(raw))
		for _, r := range raw {
			if r.KeyEnd == nil {
				r.KeyEnd = r.Key
			}
			out = append(out, r.Element)
		}
		slices.SortFunc(out, lang.CompareElements)
		return out
	}
	slices.SortStableFunc(raw, func(a, b rawElem) int {
		if c := bytes.Compare(a.Key, b.Key); c != 0 || a.end == b.end {
			return c
		}
		if a.end {
			return -1 // a range ends before the next begins at the same key
		}
		return 1
	})
	out := make([]lang.Element, 0, len(raw)/2+1)
	for i, r := range raw {
		if r.end {
			continue
		}
		r.KeyEnd = bytes.Repeat([]byte{0xff}, len(r.Key))
		if i+1 < len(raw) {
			r.KeyEnd = predecessor(raw[i+1].Key)
		}
		out = append(out, r.Element)
	}
	return out
}
