// SPDX-License-Identifier: Apache-2.0

package lang

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
		if err == nil && !s.Verdicts {
			err = fmt.Errorf("vmap @%s: the map holds %s, no verdicts", s.Name, typesString(s.Data))
		}
		c.emit(Expr{Name: "lookup", Set: s.Name, Sreg: word(0), Dreg: verdictReg})
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
		c.emit(Expr{Name: "lookup", Set: s.Name, Sreg: word(0), Flags: flags})
		return err
	case len(fs) > 1:
		return fmt.Errorf("a concatenation is only compared with @set, at %s", c.position())
	case mask != nil:
		return c.maskedCompare(fs[0], mask, negated)
	}
	return c.value(fs[0], negated)
}

// maskedCompare compiles "field & mask == value".
func (c *compiler) maskedCompare(f field, mask []byte, negated bool) error {
	v, err := f.typ.parse(c.next())
	if err != nil {
		return err
	}
	c.emit(bitwise(word(0), mask, make([]byte, len(mask))), compare(v, negated))
	return nil
}

// value compiles the comparison of one loaded field with the next value.
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
		return fmt.Errorf("%s: lists are not understood; use a set", c.position())
	case f.typ.name == "ifname" && strings.HasSuffix(strings.Trim(w, `"`), "*"):
		prefix := strings.TrimSuffix(strings.Trim(w, `"`), "*")
		if !isLinkName(prefix) || strings.Contains(prefix, "*") {
			return fmt.Errorf("%s: want the beginning of an interface's name before the star", c.position())
		}
		c.emit(compare([]byte(prefix), negated))
		return nil
	}
	lo, hi, err := f.typ.parseRange(w)
	if err != nil {
		return fmt.Errorf("%s: %w", c.position(), err)
	}
	switch bitsOfPrefix, isPrefix := prefixBits(lo, hi); {
	case bytes.Equal(lo, hi):
		c.emit(compare(lo, negated))
		if !negated {
			c.known = c.known.refine(f, lo)
		}
	case f.typ.isAddress() && isPrefix && bitsOfPrefix > 0:
		c.prefix(lo, bitsOfPrefix, negated)
	case negated:
		c.emit(Expr{Name: "range", Sreg: word(0), Key: unix.NFT_RANGE_NEQ, Data: lo, More: hi})
	default:
		c.emit(Expr{Name: "cmp", Sreg: word(0), Key: unix.NFT_CMP_GTE, Data: lo},
			Expr{Name: "cmp", Sreg: word(0), Key: unix.NFT_CMP_LTE, Data: hi})
	}
	return nil
}

// prefix compiles the comparison of the last loaded address: whole bytes need no mask.
func (c *compiler) prefix(addr []byte, length int, negated bool) {
	if length%8 == 0 {
		c.out[len(c.out)-1].Size = uint32(length / 8)
		c.emit(compare(addr[:length/8], negated))
		return
	}
	mask := make([]byte, len(addr))
	for i, b := range fillBits(mask, length) {
		mask[i] = ^b
	}
	c.emit(bitwise(word(0), mask, make([]byte, len(mask))), compare(addr, negated))
}

// flags compiles "ct state a,b": at least one of the bits.
func (c *compiler) flags(f field, w string, negated bool) error {
	if negated {
		return fmt.Errorf("%s: != is not understood for %q; name the flags that match", c.position(), f.name)
	}
	var all uint32
	for name := range strings.SplitSeq(w, ",") {
		n, ok := f.typ.symbol(name)
		if !ok {
			return fmt.Errorf("%s: %q is no %s", c.position(), name, f.typ.name)
		}
		all |= n
	}
	zero := make([]byte, f.typ.Size)
	c.emit(bitwise(word(0), f.typ.number(all), zero), compare(zero, true))
	return nil
}

func compare(v []byte, negated bool) Expr {
	e := Expr{Name: "cmp", Sreg: word(0), Key: unix.NFT_CMP_EQ, Data: v}
	if negated {
		e.Key = unix.NFT_CMP_NEQ
	}
	return e
}

func bitwise(r Register, mask, xor []byte) Expr {
	return Expr{Name: "bitwise", Sreg: r, Dreg: r, Size: uint32(len(mask)), Data: mask, More: xor}
}
