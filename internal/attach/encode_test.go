// SPDX-License-Identifier: Apache-2.0

package attach

import (
	"encoding/json"
	"reflect"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// The stored form of a record that is written once is what encoding/json makes of it, whatever is in it.
func TestEncodeIsJSON(t *testing.T) {
	for depth := range 12 {
		var r Record
		fill(reflect.ValueOf(&r).Elem(), depth)
		r.Version = RecordVersion
		want, err := json.Marshal(r)
		if err != nil {
			t.Fatal(err)
		}
		have, err := EncodeOnce(r)
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(string(want), string(have)); d != "" {
			t.Fatalf("filled to depth %d: %s", depth, d)
		}
	}
}

// fill gives everything in v, so many levels deep, a value that is not its type's zero.
func fill(v reflect.Value, depth int) {
	if depth < 0 || !v.CanSet() {
		return
	}
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			fill(v.Field(i), depth-1)
		}
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(v.Elem(), depth-1)
	case reflect.Slice:
		if v.Type() == reflect.TypeFor[json.RawMessage]() {
			v.SetBytes([]byte(`{"a": "<b>"}`))
			return
		}
		v.Set(reflect.MakeSlice(v.Type(), 2, 2))
		fill(v.Index(0), depth-1)
		fill(v.Index(1), depth-1)
	case reflect.Array:
		for i := range v.Len() {
			fill(v.Index(i), depth-1)
		}
	case reflect.String:
		v.SetString([]string{"<x> \"y\"", "plain", "ä"}[depth%3])
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		v.SetInt(7)
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		v.SetUint(7)
	}
}
