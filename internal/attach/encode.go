// SPDX-License-Identifier: Apache-2.0

package attach

import (
	"encoding"
	"encoding/json"
	"reflect"
	"strconv"
	"strings"
)

// encode is what json.Marshal gives for a record, in less time for a process that writes one: encoding/json first learns
// every type that a value could hold, and a record could hold all of state while few lists have anything in them. v is
// addressable. Maps and embedded fields, which records do not have, are not known here.
func encode(b []byte, v reflect.Value) ([]byte, error) {
	switch v.Kind() {
	case reflect.Bool:
		return strconv.AppendBool(b, v.Bool()), nil
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		return strconv.AppendInt(b, v.Int(), 10), nil
	case reflect.String:
		if text := v.String(); plain(text) && !speaks(v) {
			return append(append(append(b, '"'), text...), '"'), nil
		}
	case reflect.Pointer:
		if !v.IsNil() {
			return encode(b, v.Elem())
		}
	case reflect.Struct:
		if !speaks(v) {
			return encodeFields(b, v)
		}
	case reflect.Slice:
		if !v.IsNil() && v.Type().Elem().Kind() != reflect.Uint8 {
			return encodeList(b, v)
		}
	}
	value, err := json.Marshal(v.Interface())
	return append(b, value...), err
}

// plain tells whether a text needs no escapes.
func plain(s string) bool {
	for _, c := range []byte(s) {
		if c < ' ' || c > '~' || strings.IndexByte(`"\<>&`, c) >= 0 {
			return false
		}
	}
	return true
}

// speaks tells whether a value has its own words for itself.
func speaks(v reflect.Value) bool {
	switch v.Addr().Interface().(type) {
	case json.Marshaler, encoding.TextMarshaler:
		return true
	}
	return false
}

func encodeFields(b []byte, v reflect.Value) ([]byte, error) {
	b = append(b, '{')
	begin := len(b)
	for i := range v.NumField() {
		name, options, _ := strings.Cut(v.Type().Field(i).Tag.Get("json"), ",")
		if name == "-" || absent(v.Field(i), options) {
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

func absent(v reflect.Value, options string) bool {
	switch options {
	case "omitempty":
		return v.Kind() == reflect.Slice && v.Len() == 0 || v.Kind() != reflect.Struct && v.IsZero()
	case "omitzero":
		z, ok := v.Addr().Interface().(interface{ IsZero() bool })
		return ok && z.IsZero() || !ok && v.IsZero()
	}
	return false
}
