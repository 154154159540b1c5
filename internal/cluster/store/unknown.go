// SPDX-License-Identifier: Apache-2.0

package store

import (
	"reflect"
	"strings"
)

// keepUnknown copies what the type does not know from an object's previous fields to its new ones. The objects of a list
// are the same if the first field of their type is, which is their address or prefix.
func keepUnknown(before, now any, t reflect.Type) {
	switch old := before.(type) {
	case map[string]any:
		next, is := now.(map[string]any)
		if !is || t.Kind() != reflect.Struct {
			return
		}
		known := fieldTypes(t)
		for k, v := range old {
			if f, is := known[k]; !is {
				next[k] = v
			} else if have, is := next[k]; is {
				keepUnknown(v, have, f)
			}
		}
	case []any:
		next, is := now.([]any)
		if !is || t.Kind() != reflect.Slice || t.Elem().Kind() != reflect.Struct || t.Elem().NumField() == 0 {
			return
		}
		name := jsonName(t.Elem().Field(0))
		same := make(map[string]any, len(old))
		for _, o := range old {
			if key := member(o, name); key != "" {
				same[key] = o
			}
		}
		for _, n := range next {
			if o, is := same[member(n, name)]; is {
				keepUnknown(o, n, t.Elem())
			}
		}
	}
}

// member returns the text of a field of an object, empty if there is none.
func member(object any, name string) string {
	fields, _ := object.(map[string]any)
	text, _ := fields[name].(string)
	return text
}

// fieldTypes returns the types of a struct's fields by their names in JSON, those of pointers without the pointer.
func fieldTypes(t reflect.Type) map[string]reflect.Type {
	out := map[string]reflect.Type{}
	for i := range t.NumField() {
		f := t.Field(i)
		kind := f.Type
		if kind.Kind() == reflect.Pointer {
			kind = kind.Elem()
		}
		out[jsonName(f)] = kind
	}
	return out
}

func jsonName(f reflect.StructField) string {
	name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
	return name
}
