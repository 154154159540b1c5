// SPDX-License-Identifier: Apache-2.0

package rpc

import "encoding/binary"

// The part of encoding/gob that is sent: two structures of strings, byte strings and a number. The package itself would
// add half a megabyte to a program that starts once for each call.
//
// A message is its length, a type's number and a value. The number of a type that is being defined is negative. A
// structure is a list of (distance to the next field, value) that a zero ends; fields with their zero value are left
// out.

// The numbers of the types that need no definition.
const (
	gobBool   = 1
	gobInt    = 2
	gobUint   = 3
	gobBytes  = 5
	gobString = 6
)

// The numbers of our own types; a sender chooses them.
const (
	gobRequest = 65
	gobArgs    = 66
)

type gobField struct {
	name string
	typ  int64
}

// appendUint writes a number: itself below 128, else the negated count of its bytes and these.
func appendUint(b []byte, n uint64) []byte {
	if n < 128 {
		return append(b, byte(n))
	}
	var full [8]byte
	binary.BigEndian.PutUint64(full[:], n)
	skip := 0
	for full[skip] == 0 {
		skip++
	}
	return append(append(b, byte(-(8-skip))), full[skip:]...)
}

func appendInt(b []byte, n int64) []byte {
	if n < 0 {
		return appendUint(b, uint64(^n)<<1|1)
	}
	return appendUint(b, uint64(n)<<1)
}

func appendText[T string | []byte](b []byte, s T) []byte {
	return append(appendUint(b, uint64(len(s))), s...)
}

// appendMessage adds a message's length.
func appendMessage(b, body []byte) []byte {
	return append(appendUint(b, uint64(len(body))), body...)
}

// appendStruct defines a structure: a wireType whose third field is a structType.
func appendStruct(b []byte, id int64, name string, fields []gobField) []byte {
	body := appendInt(nil, -id)
	body = append(body, 3, 1) // StructT, its CommonType
	body = append(body, 1)
	body = appendText(body, name)
	body = append(body, 1)
	body = appendInt(body, id)
	body = append(body, 0, 1) // end of CommonType; Field
	body = appendUint(body, uint64(len(fields)))
	for _, f := range fields {
		body = append(body, 1)
		body = appendText(body, f.name)
		body = append(body, 1)
		body = appendInt(body, f.typ)
		body = append(body, 0)
	}
	return appendMessage(b, append(body, 0, 0))
}

// structure writes the fields of a structure.
type structure struct {
	b    []byte
	last int
}

func (s *structure) text(field int, v string) {
	if v != "" {
		s.b = appendUint(s.b, uint64(field-s.last))
		s.b, s.last = appendText(s.b, v), field
	}
}

func (s *structure) number(field int, v uint64) {
	if v != 0 {
		s.b = appendUint(s.b, uint64(field-s.last))
		s.b, s.last = appendUint(s.b, v), field
	}
}

func newStructure(id int64) *structure { return &structure{b: appendInt(nil, id), last: -1} }

// encodeCall is all that is sent for the first call on a connection.
func encodeCall(method string, seq uint64, a Args) []byte {
	b := appendStruct(nil, gobRequest, "Request", []gobField{{"ServiceMethod", gobString}, {"Seq", gobUint}})
	q := newStructure(gobRequest)
	q.text(0, method)
	q.number(1, seq)
	b = appendMessage(b, append(q.b, 0))
	b = appendStruct(b, gobArgs, "CmdArgs", []gobField{
		{"ContainerID", gobString},
		{"Netns", gobString},
		{"IfName", gobString},
		{"Args", gobString},
		{"Path", gobString},
		{"NetnsOverride", gobString},
		{"StdinData", gobBytes},
	})
	v := newStructure(gobArgs)
	for i, s := range []string{a.ContainerID, a.Netns, a.IfName, a.Args, a.Path, a.NetnsOverride, string(a.StdinData)} {
		v.text(i, s)
	}
	return appendMessage(b, append(v.b, 0))
}
