// SPDX-License-Identifier: Apache-2.0

package attach

import (
	"encoding/json"
	"reflect"
	"strconv"
	"strings"

	"github.com/weft-net/weft/internal/state"
)

// encode is what json.Marshal gives for a record, in less time for a process that writes one: encoding/json first learns
// every type that a value could hold, and a record could hold all of state while few lists have anything in them.
func encode(b []byte, v reflect.Value) ([]byte, error) {
	switch {
	case v.Kind() == reflect.Pointer && !v.IsNil() && sparse(v.Type().Elem()):
		return encode(b, v.Elem())
	case v.Kind() == reflect.Struct && sparse(v.Type()):
		return encodeFields(b, v)
	case v.Kind() == reflect.Slice && sparse(v.Type().Elem()) && !v.IsNil():
		return encodeList(b, v)
	}
	value, err := json.Marshal(v.Interface())
	return append(b, value...), err
}

// sparse names the types that are gone through here. All their fields are exported and named.
func sparse(t reflect.Type) bool {
	switch t {
	case reflect.TypeFor[Record](), reflect.TypeFor[Act](), reflect.TypeFor[state.Fragment](), reflect.TypeFor[state.Space]():
		return true
	}
	return false
}

func encodeFields(b []byte, v reflect.Value) ([]byte, error) {
	b = append(b, '{')
	begin := len(b)
	for i := range v.NumField() {
		name, options, _ := strings.Cut(v.Type().Field(i).Tag.Get("json"), ",")
		if field := v.Field(i); options == "omitempty" && (field.IsZero() || field.Kind() == reflect.Slice && field.Len() == 0) {
			continue
		}
		if len(b) > begin {
			b = append(b, ',')
		}
		var err error
		if b, err = encode(append(strconv.AppendQuote(b, name), ':'), v.Field(i)); err != nil {
			return nil, err
		}
	}
	return append(b, '}'), nil
}

func encodeList(b []byte, v reflect.Value) ([]byte, error) {
	b = append(b, '[')
	for i := range v.Len() {
		if i > 0 {
			b = append(b, ',')
		}
		var err error
		if b, err = encode(b, v.Index(i)); err != nil {
			return nil, err
		}
	}
	return append(b, ']'), nil
}
