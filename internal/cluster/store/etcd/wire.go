// SPDX-License-Identifier: Apache-2.0

package etcd

import (
	"google.golang.org/protobuf/encoding/protowire"
)

// The messages of etcd's API that are needed here are encoded and decoded by hand: the generated packages would cost
// every agent a quarter of a megabyte, also without an etcd.

// message is an encoded protobuf message. Zero fields are left out.
type message []byte

func (m message) text(field protowire.Number, s string) message { return m.sub(field, message(s)) }

func (m message) number(field protowire.Number, n int64) message {
	if n == 0 {
		return m
	}
	return protowire.AppendVarint(protowire.AppendTag(m, field, protowire.VarintType), uint64(n))
}

func (m message) sub(field protowire.Number, inner message) message {
	return protowire.AppendBytes(protowire.AppendTag(m, field, protowire.BytesType), inner)
}

// read decodes a message. Only varint and bytes fields are used.
func read(b []byte, field func(num protowire.Number, n int64, inner []byte) error) error {
	for len(b) > 0 {
		num, kind, size := protowire.ConsumeTag(b)
		if size < 0 {
			return protowire.ParseError(size)
		}
		b = b[size:]
		var n uint64
		var inner []byte
		switch kind {
		case protowire.VarintType:
			n, size = protowire.ConsumeVarint(b)
		case protowire.BytesType:
			inner, size = protowire.ConsumeBytes(b)
		default:
			size = protowire.ConsumeFieldValue(num, kind, b)
		}
		if size < 0 {
			return protowire.ParseError(size)
		}
		b = b[size:]
		if err := field(num, int64(n), inner); err != nil {
			return err
		}
	}
	return nil
}

// keyValue is a stored key (mvccpb.KeyValue).
type keyValue struct {
	key, value               string
	created, modified, lease int64
}

func (kv *keyValue) read(b []byte) error {
	return read(b, func(num protowire.Number, n int64, inner []byte) error {
		switch num {
		case 1:
			kv.key = string(inner)
		case 2:
			kv.created = n
		case 3:
			kv.modified = n
		case 5:
			kv.value = string(inner)
		case 6:
			kv.lease = n
		}
		return nil
	})
}

// get is a RangeRequest for a key, or for all keys with the prefix.
func get(key string, all bool) message {
	m := message{}.text(1, key)
	if all {
		m = m.text(2, prefixEnd(key))
	}
	return m
}

// prefixEnd returns the first key after all keys with the prefix.
func prefixEnd(prefix string) string {
	b := []byte(prefix)
	b[len(b)-1]++ // prefixes end with a slash or a letter
	return string(b)
}

func put(key string, value []byte, lease int64) message {
	return message{}.text(1, key).sub(2, value).number(3, lease)
}

// opGet, opPut and opDelete are the operations of a transaction.
func opGet(m message) message    { return message{}.sub(1, m) }
func opPut(m message) message    { return message{}.sub(2, m) }
func opDelete(m message) message { return message{}.sub(3, m) }

// ifCreated is the condition that a key was created at that revision; 0: that there is none.
func ifCreated(key string, revision int64) message {
	const create = 1 // the target; the result EQUAL is 0
	m := message{}.number(2, create).text(3, key)
	return protowire.AppendVarint(protowire.AppendTag(m, 5, protowire.VarintType), uint64(revision))
}

// ifModified is the condition that a key was changed last at that revision.
func ifModified(key string, revision int64) message {
	const modified = 2
	m := message{}.number(2, modified).text(3, key)
	return protowire.AppendVarint(protowire.AppendTag(m, 6, protowire.VarintType), uint64(revision))
}

// result is the response of a transaction or a range request.
type result struct {
	revision  int64
	succeeded bool
	ranges    [][]keyValue
}

func (r *result) readTxn(b []byte) error {
	return read(b, func(num protowire.Number, n int64, inner []byte) error {
		switch num {
		case 1:
			return r.header(inner)
		case 2:
			r.succeeded = n != 0
		case 3:
			return read(inner, func(op protowire.Number, _ int64, inner []byte) error {
				if op != 1 {
					return nil
				}
				return r.readRange(inner)
			})
		}
		return nil
	})
}

func (r *result) readRange(b []byte) error {
	var kvs []keyValue
	err := read(b, func(num protowire.Number, _ int64, inner []byte) error {
		switch num {
		case 1:
			return r.header(inner)
		case 2:
			var kv keyValue
			if err := kv.read(inner); err != nil {
				return err
			}
			kvs = append(kvs, kv)
		}
		return nil
	})
	r.ranges = append(r.ranges, kvs)
	return err
}

func (r *result) header(b []byte) error {
	return read(b, func(num protowire.Number, n int64, _ []byte) error {
		if num == 3 && n > 0 {
			r.revision = n
		}
		return nil
	})
}

// change is one event of a watch.
type change struct {
	keyValue
	gone bool
}

// watchResponse is a WatchResponse.
type watchResponse struct {
	changes  []change
	canceled bool
	reason   string
}

func (w *watchResponse) read(b []byte) error {
	return read(b, func(num protowire.Number, n int64, inner []byte) error {
		switch num {
		case 4:
			w.canceled = n != 0
		case 6:
			w.reason = string(inner)
		case 11:
			var c change
			err := read(inner, func(num protowire.Number, n int64, inner []byte) error {
				switch num {
				case 1:
					c.gone = n == 1
				case 2:
					return c.read(inner)
				}
				return nil
			})
			w.changes = append(w.changes, c)
			return err
		}
		return nil
	})
}
