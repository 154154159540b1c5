// SPDX-License-Identifier: Apache-2.0

package rpc

import (
	"bufio"
	"errors"
	"fmt"
	"io"
)

// The part of encoding/gob that is received, read without knowing its types before: structures become maps by field
// name, lists become lists.

const (
	maxMessage = 4 << 20
	maxDepth   = 16
	maxTypes   = 1 << 10
)

var errGob = errors.New("malformed message")

// decoder reads values from a connection.
type decoder struct {
	r     *bufio.Reader
	types map[int64]gobType
}

// gobType is a type that the sender defined.
type gobType struct {
	kind   gobKind
	elem   int64 // of lists and maps
	key    int64
	fields []gobField
}

type gobKind uint8

const (
	gobStruct gobKind = iota
	gobList
	gobMap
	gobOpaque // encodes itself: a byte string to us
)

// next reads the next value; definitions on the way are remembered.
func (d *decoder) next() (any, error) {
	for {
		c, err := d.message()
		if err != nil {
			return nil, err
		}
		id := c.int()
		if id >= 0 {
			if !d.isStruct(id) && c.uint() != 0 { // a value that is no structure is a field without a name
				c.fail()
			}
			v := c.value(d, id, 0)
			return v, c.err
		}
		if len(d.types) >= maxTypes {
			return nil, errGob
		}
		d.types[-id] = c.define()
		if c.err != nil {
			return nil, c.err
		}
	}
}

func (d *decoder) isStruct(id int64) bool {
	t, ok := d.types[id]
	return ok && t.kind == gobStruct
}

// message reads one message.
func (d *decoder) message() (*cursor, error) {
	first, err := d.r.ReadByte()
	if err != nil {
		return nil, err
	}
	head := []byte{first}
	if first >= 128 {
		more := make([]byte, -int(int8(first)))
		if len(more) > 8 {
			return nil, errGob
		}
		if _, err := io.ReadFull(d.r, more); err != nil {
			return nil, err
		}
		head = append(head, more...)
	}
	n := (&cursor{b: head}).uint()
	if n > maxMessage {
		return nil, fmt.Errorf("%w: %d bytes", errGob, n)
	}
	body := make([]byte, n)
	if _, err := io.ReadFull(d.r, body); err != nil {
		return nil, err
	}
	return &cursor{b: body}, nil
}

// cursor walks through a message. After an error everything it reads is zero.
type cursor struct {
	b   []byte
	err error
}

func (c *cursor) fail() { c.b, c.err = nil, errGob }

func (c *cursor) bytes(n uint64) []byte {
	if n > uint64(len(c.b)) {
		c.fail()
		return nil
	}
	out := c.b[:n]
	c.b = c.b[n:]
	return out
}

func (c *cursor) uint() uint64 {
	first := c.bytes(1)
	if len(first) == 0 {
		return 0
	}
	if first[0] < 128 {
		return uint64(first[0])
	}
	n := uint64(-int(int8(first[0])))
	if n > 8 {
		c.fail()
		return 0
	}
	v := uint64(0)
	for _, b := range c.bytes(n) {
		v = v<<8 | uint64(b)
	}
	return v
}

func (c *cursor) int() int64 {
	u := c.uint()
	if u&1 != 0 {
		return ^int64(u >> 1)
	}
	return int64(u >> 1)
}

// fields calls f for each field of a structure; f reads its value.
func (c *cursor) fields(f func(i uint64)) {
	for i := uint64(0); c.err == nil; {
		step := c.uint()
		if step == 0 {
			return
		}
		i += step
		if i > maxTypes {
			c.fail()
			return
		}
		f(i - 1)
	}
}

// define reads a wireType.
func (c *cursor) define() (t gobType) {
	c.fields(func(which uint64) {
		t.kind = gobOpaque
		switch which {
		case 0, 1:
			t.kind = gobList
		case 2:
			t.kind = gobStruct
		case 3:
			t.kind = gobMap
		}
		c.fields(func(i uint64) {
			switch {
			case i == 0: // CommonType
				c.common()
			case t.kind == gobStruct && i == 1:
				for n := c.uint(); n > 0 && c.err == nil; n-- {
					t.fields = append(t.fields, c.common())
				}
			case t.kind == gobMap && i == 1:
				t.key = c.int()
			case t.kind == gobMap && i == 2, t.kind == gobList && i == 1:
				t.elem = c.int()
			case t.kind == gobList && i == 2:
				c.int() // an array's length, which its values have too
			default:
				c.fail()
			}
		})
	})
	return t
}

// common reads a structure of a name and a number.
func (c *cursor) common() (f gobField) {
	c.fields(func(i uint64) {
		switch i {
		case 0:
			f.name = string(c.bytes(c.uint()))
		case 1:
			f.typ = c.int()
		default:
			c.fail()
		}
	})
	return f
}

// value reads a value of a type.
func (c *cursor) value(d *decoder, id int64, depth int) any {
	switch id {
	case gobBool:
		return c.uint() != 0
	case gobInt:
		return c.int()
	case gobUint:
		return c.uint()
	case gobBytes:
		return c.bytes(c.uint())
	case gobString:
		return string(c.bytes(c.uint()))
	}
	t, ok := d.types[id]
	if !ok || depth > maxDepth {
		c.fail()
		return nil
	}
	switch t.kind {
	case gobOpaque:
		return c.bytes(c.uint())
	case gobStruct:
		out := map[string]any{}
		c.fields(func(i uint64) {
			if i >= uint64(len(t.fields)) {
				c.fail()
				return
			}
			out[t.fields[i].name] = c.value(d, t.fields[i].typ, depth+1)
		})
		return out
	}
	return c.list(d, t, depth)
}

func (c *cursor) list(d *decoder, t gobType, depth int) any {
	n := c.uint()
	if n > uint64(len(c.b)) { // each element has a byte at least
		c.fail()
	}
	var out []any
	for ; n > 0 && c.err == nil; n-- {
		if t.kind == gobMap {
			c.value(d, t.key, depth+1)
		}
		out = append(out, c.value(d, t.elem, depth+1))
	}
	return out
}
