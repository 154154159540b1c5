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

// slot maps an attribute of an expression to its field; exactly one pointer is set, none for an attribute that is not
// compared.
type slot struct {
	attr uint16
	reg  *lang.Register
	num  *uint32
	// always writes the number though it is zero.
	always  bool
	data    *[]byte // a nested NFTA_DATA_VALUE
	raw     *[]byte
	short   **uint16
	long    *uint64
	str     *string
	verdict **lang.Verdict
}

// slots lists the attributes of an expression (linux/netfilter/nf_tables.h); ok is false for one that weft never
// writes.
func slots(e *lang.Expr) (list []slot, ok bool) {
	switch e.Name {
	case "meta":
		return []slot{{attr: 2, num: &e.Key, always: true}, {attr: 1, reg: &e.Dreg}, {attr: 3, reg: &e.Sreg}}, true
	case "ct":
		return []slot{{attr: 2, num: &e.Key, always: true}, {attr: 1, reg: &e.Dreg}, {attr: 4, reg: &e.Sreg}}, true
	case "fib":
		return []slot{{attr: 1, reg: &e.Dreg}, {attr: 2, num: &e.Key}, {attr: 3, num: &e.Flags}}, true
	case "payload":
		return []slot{
			{attr: 1, reg: &e.Dreg},
			{attr: 2, num: &e.Key, always: true},
			{attr: 3, num: &e.Offset, always: true},
			{attr: 4, num: &e.Size},
			{attr: 5, reg: &e.Sreg},
			{attr: 6, num: &e.Csum},
			{attr: 7, num: &e.CsumOffset},
			{attr: 8},
		}, true
	case "cmp":
		return []slot{{attr: 1, reg: &e.Sreg}, {attr: 2, num: &e.Key, always: true}, {attr: 3, data: &e.Data}}, true
	case "range":
		return []slot{
			{attr: 1, reg: &e.Sreg}, {attr: 2, num: &e.Key, always: true}, {attr: 3, data: &e.Data}, {attr: 4, data: &e.More},
		}, true
	case "bitwise":
		return []slot{
			{attr: 1, reg: &e.Sreg},
			{attr: 2, reg: &e.Dreg},
			{attr: 3, num: &e.Size},
			{attr: 4, data: &e.Data},
			{attr: 5, data: &e.More},
			{attr: 6},
		}, true
	case "lookup":
		return []slot{
			{attr: 1, str: &e.Set}, {attr: 2, reg: &e.Sreg}, {attr: 3, reg: &e.Dreg}, {attr: 4}, {attr: 5, num: &e.Flags},
		}, true
	case "immediate":
		return []slot{{attr: 1, reg: &e.Dreg}, {attr: 2, data: &e.Data, verdict: &e.Verdict}}, true
	case "nat":
		return []slot{
			{attr: 1, num: &e.Key, always: true},
			{attr: 2, num: &e.Family},
			{attr: 3, reg: &e.AddrReg},
			{attr: 4},
			{attr: 5, reg: &e.PortReg},
			{attr: 6},
			{attr: 7, num: &e.Flags},
		}, true
	case "masq":
		return []slot{{attr: 1, num: &e.Flags}}, true
	case "reject":
		return []slot{{attr: 1, num: &e.Key, always: true}, {attr: 2, raw: &e.Code}}, true
	}
	return moreSlots(e)
}

// moreSlots is slots for counters, limits, logs and dynamic sets.
func moreSlots(e *lang.Expr) (list []slot, ok bool) {
	switch e.Name {
	case "counter":
		return []slot{{attr: 1}, {attr: 2}, {attr: 3}}, true
	case "notrack":
		return nil, true
	case "fwd":
		return []slot{{attr: 1, reg: &e.Sreg}, {attr: 2}, {attr: 3}}, true
	case "log":
		return []slot{
			{attr: 1, short: &e.Group}, {attr: 2, str: &e.Prefix}, {attr: 3, num: &e.Size}, {attr: 4}, {attr: 5},
		}, true
	case "limit":
		// In packets (type 0), below the rate (flags 0) or above it.
		return []slot{
			{attr: 1, long: &e.Rate},
			{attr: 2, long: &e.Per},
			{attr: 3, num: &e.Burst},
			{attr: 4, num: &e.Key},
			{attr: 5, num: &e.Flags},
		}, true
	case "dynset":
		return []slot{
			{attr: 1, str: &e.Set},
			{attr: 3, num: &e.Key, always: true},
			{attr: 4, reg: &e.Sreg},
			{attr: 6, long: &e.Timeout},
			{attr: 8},
			{attr: 9, num: &e.Flags},
		}, true
	case "flow_offload":
		return []slot{{attr: 1, str: &e.Set}}, true
	case "connlimit":
		return []slot{{attr: 1, num: &e.Size, always: true}, {attr: 2, num: &e.Flags}}, true
	}
	return nil, false
}

// putExpr writes one expression into the list that is open.
func (b *batch) putExpr(e lang.Expr) { b.putExprAs(unix.NFTA_LIST_ELEM, e) }

func (b *batch) putExprAs(typ uint16, e lang.Expr) {
	item := b.Begin(typ | nested)
	b.String(unix.NFTA_EXPR_NAME, e.Name)
	list, _ := slots(&e)
	if len(list) > 0 {
		data := b.Begin(unix.NFTA_EXPR_DATA | nested)
		for _, s := range list {
			b.putSlot(s)
		}
		b.End(data)
	}
	b.End(item)
}

func (b *batch) putSlot(s slot) {
	switch {
	case s.verdict != nil && *s.verdict != nil:
		n := b.Begin(s.attr | nested)
		v := b.Begin(unix.NFTA_DATA_VERDICT | nested)
		b.BE32(unix.NFTA_VERDICT_CODE, uint32((*s.verdict).Code))
		if (*s.verdict).Chain != "" {
			b.String(unix.NFTA_VERDICT_CHAIN, (*s.verdict).Chain)
		}
		b.End(v)
		b.End(n)
	case s.reg != nil && *s.reg != 0:
		b.BE32(s.attr, s.reg.Number())
	case s.num != nil && (s.always || *s.num != 0):
		b.BE32(s.attr, *s.num)
	case s.data != nil:
		b.putKey(s.attr, *s.data)
	case s.raw != nil:
		b.Attr(s.attr, *s.raw)
	case s.short != nil && *s.short != nil:
		b.BE16(s.attr, **s.short)
	case s.long != nil:
		b.BE64(s.attr, *s.long)
	case s.str != nil && *s.str != "":
		b.String(s.attr, *s.str)
	}
}

// decodeExprs reads the expressions of a rule.
func decodeExprs(b []byte) []lang.Expr {
	var out []lang.Expr
	for _, item := range netlink.Attrs(b) {
		out = append(out, decodeExpr(item))
	}
	return out
}

func decodeExpr(item []byte) lang.Expr {
	e := lang.Expr{Name: netlink.String(netlink.Find(item, unix.NFTA_EXPR_NAME))}
	list, ok := slots(&e)
	e.Unknown = !ok
	for typ, v := range netlink.Attrs(netlink.Find(item, unix.NFTA_EXPR_DATA)) {
		at := slices.IndexFunc(list, func(s slot) bool { return s.attr == typ })
		if at < 0 {
			e.Unknown = true
			continue
		}
		list[at].take(v)
	}
	return e
}

func (s slot) take(v []byte) {
	switch {
	case s.verdict != nil && netlink.Find(v, unix.NFTA_DATA_VERDICT) != nil:
		_, *s.verdict = decodeValue(v)
	case s.reg != nil:
		*s.reg = lang.RegisterByNumber(netlink.BE32(v))
	case s.num != nil:
		*s.num = netlink.BE32(v)
	case s.data != nil:
		*s.data = bytes.Clone(netlink.Find(v, unix.NFTA_DATA_VALUE))
	case s.raw != nil:
		*s.raw = bytes.Clone(v)
	case s.short != nil && len(v) >= 2:
		n := binary.BigEndian.Uint16(v)
		*s.short = &n
	case s.long != nil:
		*s.long = netlink.BE64(v)
	case s.str != nil:
		*s.str = netlink.String(v)
	}
}

// putStateful adds the stateful expression of an element.
func (b *batch) putStateful(e *lang.Expr) {
	if e != nil {
		b.putExprAs(unix.NFTA_SET_ELEM_EXPR, *e)
	}
}
