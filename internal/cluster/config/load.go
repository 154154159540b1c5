// SPDX-License-Identifier: Apache-2.0

package config

import (
	"bytes"
	"encoding"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"reflect"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/weft-net/weft/internal/model"
)

// maxSize bounds the size of a configuration.
const maxSize = 1 << 20 // bytes, as a ConfigMap's

// Load reads a configuration file.
func Load(path string) (Config, error) {
	const hint = "name a file with --config, or leave it out for the defaults"
	info, err := os.Stat(path)
	if err != nil {
		return Config{}, model.Errorf(model.CodeIO, hint, "configuration: %w", err)
	}
	if !info.Mode().IsRegular() || info.Size() > maxSize {
		return Config{}, model.Errorf(model.CodeIO, hint, "configuration %s is no regular file of at most 1 MiB", path)
	}
	b, err := os.ReadFile(path)
	if err != nil {
		return Config{}, model.Errorf(model.CodeIO, hint, "configuration: %w", err)
	}
	c, err := Parse(b)
	if err != nil {
		return Config{}, within(path, err)
	}
	return c, nil
}

// within adds the file's path to an error.
func within(path string, err error) error {
	fault, ok := err.(*model.Error) //nolint:errorlint // Parse gives nothing else, and gives it bare
	if !ok {
		return fmt.Errorf("configuration %s: %w", path, err)
	}
	return &model.Error{
		Code: fault.Code, Hint: fault.Hint, Msg: "configuration " + path + ": " + fault.Msg, Err: fault.Err,
	}
}

// Parse parses a configuration over the defaults and validates it.
func Parse(b []byte) (Config, error) {
	c := Default()
	doc, err := yaml.YAMLToJSONStrict(b)
	if err != nil {
		why := strings.TrimPrefix(err.Error(), "yaml: ")
		return c, model.Errorf(model.CodeDecode, "write it as YAML or JSON, each key once", "it cannot be read: %s", why)
	}
	var tree any
	d := json.NewDecoder(bytes.NewReader(doc))
	d.UseNumber()
	if err := d.Decode(&tree); err != nil {
		return c, model.Errorf(model.CodeDecode, "", "it cannot be read: %w", err)
	}
	if tree == nil { // an empty file
		return c, c.Check()
	}
	if err := set("", reflect.ValueOf(&c).Elem(), tree); err != nil {
		return c, err
	}
	return c, c.Check()
}

// set sets the field at a path to a JSON value.
func set(path string, field reflect.Value, value any) error {
	if value == nil {
		return nil // the key without a value leaves the default
	}
	if u, ok := field.Addr().Interface().(encoding.TextUnmarshaler); ok {
		s, isString := value.(string)
		if !isString {
			return mistyped(path, value, "string")
		}
		if err := u.UnmarshalText([]byte(s)); err != nil {
			return bad(path, s, reason(field, err))
		}
		return nil
	}
	switch field.Kind() {
	case reflect.Struct:
		return setObject(path, field, value)
	case reflect.Slice:
		return setList(path, field, value)
	case reflect.String:
		if s, ok := value.(string); ok {
			field.SetString(s)
			return nil
		}
		if value == false { // YAML's reading of off without quotes, which is a value of several keys
			field.SetString("off")
			return nil
		}
		return mistyped(path, value, "string")
	case reflect.Bool:
		if b, ok := value.(bool); ok {
			field.SetBool(b)
			return nil
		}
		return mistyped(path, value, "true or false")
	case reflect.Int:
		if n, ok := value.(json.Number); ok {
			i, err := n.Int64()
			if err != nil || i > math.MaxInt32 || i < math.MinInt32 {
				return bad(path, n.String(), "a whole number")
			}
			field.SetInt(i)
			return nil
		}
		return mistyped(path, value, "number")
	}
	return fmt.Errorf("%s: a field of kind %s cannot be configured", path, field.Kind())
}

func setObject(path string, field reflect.Value, value any) error {
	object, ok := value.(map[string]any)
	if !ok {
		return mistyped(path, value, "object")
	}
	names := keysOf(field.Type())
	for _, key := range sorted(object) {
		i := slices.Index(names, key)
		if i < 0 {
			hint := "the keys here are " + strings.Join(names, ", ")
			return model.Errorf(model.CodeUnsupportedField, hint, "%s: unknown key", join(path, key))
		}
		if err := set(join(path, key), field.Field(i), object[key]); err != nil {
			return err
		}
	}
	return nil
}

func setList(path string, field reflect.Value, value any) error {
	list, ok := value.([]any)
	if !ok {
		return mistyped(path, value, "list")
	}
	all := reflect.MakeSlice(field.Type(), len(list), len(list))
	for i, v := range list {
		at := fmt.Sprintf("%s[%d]", path, i)
		if v == nil {
			return mistyped(at, v, "string")
		}
		if err := set(at, all.Index(i), v); err != nil {
			return err
		}
	}
	field.Set(all)
	return nil
}

// keysOf returns the keys of an object, in the order of its fields.
func keysOf(t reflect.Type) []string {
	var names []string
	for i := range t.NumField() {
		names = append(names, t.Field(i).Tag.Get("json"))
	}
	return names
}

func sorted(object map[string]any) []string {
	var keys []string
	for k := range object {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

func join(path, key string) string {
	if path == "" {
		return key
	}
	return path + "." + key
}

func mistyped(path string, value any, want string) error {
	kind := "null"
	switch value.(type) {
	case string:
		kind = "a string"
	case bool:
		kind = "true or false"
	case json.Number:
		kind = "a number"
	case []any:
		kind = "a list"
	case map[string]any:
		kind = "an object"
	}
	if path == "" {
		path = "the file"
	}
	return model.Errorf(model.CodeDecode, "", "%s is %s, want %s", path, kind, want)
}

func bad(path, value, want string) error {
	return model.Errorf(model.CodeInvalidConf, "", "%s %q is not %s", path, value, want)
}

// reason returns what a text should have been.
func reason(field reflect.Value, err error) string {
	switch field.Type().Name() {
	case "Prefix":
		return "a prefix, as 10.244.0.0/16"
	case "Duration":
		return "a time, as 5m"
	case "Level":
		return "one of DEBUG, INFO, WARN, ERROR"
	}
	return "understood: " + err.Error()
}
