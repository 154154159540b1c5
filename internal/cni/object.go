// SPDX-License-Identifier: Apache-2.0

package cni

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"

	"github.com/weft-net/weft/internal/model"
)

// object is a JSON object with raw values, so that unknown fields survive every change.
type object map[string]json.RawMessage

func parseObject(what string, b []byte) (object, error) {
	if len(b) > maxConf {
		return nil, model.Errorf(model.CodeDecode, "", "%s: %d bytes, at most %d", what, len(b), maxConf)
	}
	var o object
	if err := json.Unmarshal(b, &o); err != nil {
		return nil, decodeFault(what, b, err)
	}
	if o == nil {
		return nil, model.Errorf(model.CodeDecode, "", "%s: null instead of an object", what)
	}
	return o, nil
}

// decodeFault adds the position in the text to a decoding error.
func decodeFault(what string, b []byte, err error) error {
	var syntax *json.SyntaxError
	var typ *json.UnmarshalTypeError
	switch {
	case len(bytes.TrimSpace(b)) == 0:
		return model.Errorf(model.CodeDecode, "", "%s: empty", what)
	case errors.As(err, &syntax):
		line, col := place(b, syntax.Offset)
		return model.Errorf(model.CodeDecode, "", "%s: line %d column %d: %w", what, line, col, err)
	case errors.As(err, &typ):
		return model.Errorf(model.CodeDecode, "", "%s: %s is %s, want %s", what, fieldName(typ.Field), typ.Value,
			kindOf(typ.Type))
	}
	return model.Errorf(model.CodeDecode, "", "%s: %w", what, err)
}

// Decode decodes a document and describes errors in terms of JSON.
func Decode(what string, b []byte, v any) error {
	if err := json.Unmarshal(b, v); err != nil {
		return decodeFault(what, b, err)
	}
	return nil
}

// kindOf returns the name of the JSON type for a Go type.
func kindOf(t reflect.Type) string {
	switch t.Kind() {
	case reflect.Slice, reflect.Array:
		return "list"
	case reflect.Map, reflect.Struct:
		return "object"
	}
	return t.String()
}

func fieldName(s string) string {
	if s == "" {
		return "it"
	}
	return s
}

func place(b []byte, offset int64) (line, col int) {
	seen := b[:min(max(offset-1, 0), int64(len(b)))]
	line = bytes.Count(seen, []byte("\n")) + 1
	return line, len(seen) - bytes.LastIndexByte(seen, '\n')
}

// get decodes one field; an absent or null one leaves v unchanged.
func (o object) get(what, key string, v any) error {
	raw, ok := o[key]
	if !ok {
		return nil
	}
	if err := json.Unmarshal(raw, v); err != nil {
		var typ *json.UnmarshalTypeError
		if errors.As(err, &typ) {
			name := key
			if typ.Field != "" {
				name += "." + typ.Field
			}
			return model.Errorf(model.CodeDecode, "", "%s: %s is %s, want %s", what, name, typ.Value, kindOf(typ.Type))
		}
		return model.Errorf(model.CodeDecode, "", "%s: %s: %w", what, key, err)
	}
	return nil
}

func (o object) set(key string, v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("field %s: %w", key, err)
	}
	o[key] = b
	return nil
}

// raw returns the object as JSON with sorted keys.
func (o object) raw() (json.RawMessage, error) {
	b, err := json.Marshal(o)
	if err != nil {
		return nil, fmt.Errorf("plugin configuration: %w", err)
	}
	return b, nil
}
