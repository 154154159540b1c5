// SPDX-License-Identifier: Apache-2.0

package nft

import (
	"bytes"
	"fmt"
	"strings"

	"golang.org/x/sys/unix"
)

// match compiles "fields [!=] value", "fields [!=] @set" or "fields vmap @map".
func (c *compiler) match() error {
	fs, err := c.key(0)
	if err != nil {
		return err
	}
	if c.accept("vmap") {
		s, err := c.lookup(fs, true)
		if err == nil && !s.verdicts {
			err = fmt.Errorf("vmap @%s: the map holds %s, no verdicts", s.name, typesString(s.data))
		}
		c.emit(expr{op: "lookup", set: s.name, sreg: word(0), dreg: verdictReg})
		return err
	}
	var mask []byte
	if len(fs) == 1 && c.accept("&") {
		if mask, err = fs[0].typ.parse(c.next()); err != nil {
			return fmt.Errorf("mask: %w", err)
		}
	}
	negated := c.accept("!=")
	if !negated {
		c.accept("==")
	}
	switch {
	case strings.HasPrefix(c.peek(), "@") && mask == nil:
		s, err := c.lookup(fs, false)
		var flags uint32
		if negated {
			flags = unix.NFT_LOOKUP_F_INV
		}
		c.emit(expr{op: "lookup", set: s.name, sreg: word(0), flags: flags})
		return err
	case len(fs) > 1:
		return fmt.Errorf("a concatenation is only compared with @set, at %s", c.here())
	case mask != nil:
		return c.masked(fs[0], mask, negated)
	}
	return c.value(fs[0], negated)
}

// masked compiles "field & mask == value".
func (c *compiler) masked(f field, mask []byte, negated bool) error {
	v, err := f.typ.parse(c.next())
	if err != nil {
		return err
	}
	c.emit(bits(word(0), mask, make([]byte, len(mask))), compare(v, negated))
	return nil
}

// value compiles the comparison of one loaded field with what comes next.
func (c *compiler) value(f field, negated bool) error {
	w := c.peek()
	if w == "" {
		return fmt.Errorf("want a value for %q at the end", f.name)
	}
	defer func() { c.pos++ }()
	switch {
	case f.typ.isFlags():
		return c.flags(f, w, negated)
	case strings.Contains(w, ","), strings.HasPrefix(w, "{"):
		return fmt.Errorf("%s: lists are not understood; use a set", c.here())
	case f.typ.name == "ifname" && strings.HasSuffix(strings.Trim(w, `"`), "*"):
		prefix := strings.TrimSuffix(strings.Trim(w, `"`), "*")
		if !isLinkName(prefix) || strings.Contains(prefix, "*") {
			return fmt.Errorf("%s: want the beginning of an interface's name before the star", c.here())
		}
		c.emit(compare([]byte(prefix), negated))
		return nil
	}
	lo, hi, err := f.typ.parseRange(w)
	if err != nil {
		return fmt.Errorf("%s: %w", c.here(), err)
	}
	switch bitsOfPrefix, isPrefix := prefixBits(lo, hi); {
	case bytes.Equal(lo, hi):
		c.emit(compare(lo, negated))
		if !negated {
			c.known, _ = c.known.learn(f, lo)
		}
	case f.typ.isAddress() && isPrefix && bitsOfPrefix > 0:
		c.prefix(lo, bitsOfPrefix, negated)
	case negated:
		c.emit(expr{op: "range", sreg: word(0), key: unix.NFT_RANGE_NEQ, data: lo, more: hi})
	default:
		c.emit(expr{op: "cmp", sreg: word(0), key: unix.NFT_CMP_GTE, data: lo},
			expr{op: "cmp", sreg: word(0), key: unix.NFT_CMP_LTE, data: hi})
	}
	return nil
}

// prefix compiles the comparison of the address that was loaded last: whole bytes need no mask.
func (c *compiler) prefix(addr []byte, length int, negated bool) {
	if length%8 == 0 {
		c.out[len(c.out)-1].size = uint32(length / 8)
		c.emit(compare(addr[:length/8], negated))
		return
	}
	mask := make([]byte, len(addr))
	for i, b := range fillBits(mask, length) {
		mask[i] = ^b
	}
	c.emit(bits(word(0), mask, make([]byte, len(mask))), compare(addr, negated))
}

// flags compiles "ct state a,b": at least one of the bits.
func (c *compiler) flags(f field, w string, negated bool) error {
	if negated {
		return fmt.Errorf("%s: != is not understood for %q; name the flags that match", c.here(), f.name)
	}
	var all uint32
	for name := range strings.SplitSeq(w, ",") {
		n, ok := f.typ.symbol(name)
		if !ok {
			return fmt.Errorf("%s: %q is no %s", c.here(), name, f.typ.name)
		}
		all |= n
	}
	zero := make([]byte, f.typ.size)
	c.emit(bits(word(0), f.typ.number(all), zero), compare(zero, true))
	return nil
}

func compare(v []byte, negated bool) expr {
	e := expr{op: "cmp", sreg: word(0), key: unix.NFT_CMP_EQ, data: v}
	if negated {
		e.key = unix.NFT_CMP_NEQ
	}
	return e
}

func bits(r reg, mask, xor []byte) expr {
	return expr{op: "bitwise", sreg: r, dreg: r, size: uint32(len(mask)), data: mask, more: xor}
}
