// SPDX-License-Identifier: Apache-2.0

package flannel

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/netip"
	"strings"

	"github.com/weft-net/weft/internal/model"
)

// field is one key of a JSON object and where its value goes: *bool, *string, *netip.Prefix, *netip.Addr, number,
// duration or *json.RawMessage.
type field struct {
	name string
	into any
}

// number is a whole number within limits.
type number struct {
	into     *int
	min, max int
}

// decode fills fields from a JSON object. Keys are compared without case, as flannel's decoder does. path precedes
// the keys in what is said about them.
func decode(path string, raw []byte, fields []field) ([]model.Warning, error) {
	var warnings []model.Warning
	dec := json.NewDecoder(bytes.NewReader(raw))
	if t, err := dec.Token(); err != nil || t != json.Delim('{') {
		return nil, notObject(path, raw)
	}
	seen := map[string]bool{}
	for dec.More() {
		t, err := dec.Token()
		if err != nil {
			return nil, broken(path, err)
		}
		key, _ := t.(string)
		var value json.RawMessage
		if err := dec.Decode(&value); err != nil {
			return nil, broken(path, err)
		}
		f, ok := find(fields, key)
		if !ok {
			warnings = append(warnings, unknown(path, key, fields))
			continue
		}
		if seen[f.name] {
			warnings = append(warnings, model.Warning{
				Field: path + key, Msg: path + key + " occurs twice", Hint: "the last one counts; remove the others",
			})
		}
		seen[f.name] = true
		if bytes.Equal(value, []byte("null")) {
			continue // as if it were not there
		}
		if err := f.set(path, value); err != nil {
			return nil, err
		}
	}
	if _, err := dec.Token(); err != nil {
		return nil, broken(path, err)
	}
	if dec.More() {
		return nil, model.Errorf(model.CodeDecode, "leave one JSON object", "%s: something follows the closing brace",
			document(path))
	}
	return warnings, nil
}

func document(path string) string {
	if path == "" {
		return "net-conf.json"
	}
	return strings.TrimSuffix(path, ".")
}

func broken(path string, err error) error {
	return model.Errorf(model.CodeDecode, "it must be one JSON object", "%s: %w", document(path), err)
}

func notObject(path string, raw []byte) error {
	return model.Errorf(model.CodeDecode, "it must be one JSON object", "%s: %s is no JSON object",
		document(path), short(raw))
}

func find(fields []field, key string) (field, bool) {
	for _, f := range fields {
		if strings.EqualFold(f.name, key) {
			return f, true
		}
	}
	return field{}, false
}

func (f field) set(path string, raw json.RawMessage) error {
	wrong := func(hint, want string) error {
		return model.Errorf(model.CodeInvalidConf, hint, "%s%s %s is no %s", path, f.name, short(raw), want)
	}
	var text string
	isText := json.Unmarshal(raw, &text) == nil
	switch into := f.into.(type) {
	case *json.RawMessage:
		*into = raw
	case *bool:
		if json.Unmarshal(raw, into) != nil {
			return wrong("write true or false, without quotes", "boolean")
		}
	case *string:
		if !isText {
			return wrong("put quotes around it", "text")
		}
		*into = text
	case number:
		var n int
		if json.Unmarshal(raw, &n) != nil {
			return wrong("write a whole number, without quotes", "whole number")
		}
		if n < into.min || n > into.max {
			return model.Errorf(model.CodeInvalidConf, fmt.Sprintf("%d to %d are possible", into.min, into.max),
				"%s%s %d is out of range", path, f.name, n)
		}
		*into.into = n
	case *netip.Prefix:
		p, err := netip.ParsePrefix(text)
		if err != nil || p.Addr().Is4In6() {
			return wrong(`write for example "10.244.0.0/16"`, "prefix")
		}
		*into = p
	case *netip.Addr:
		a, err := netip.ParseAddr(text)
		if err != nil || a.Zone() != "" {
			return wrong(`write for example "10.244.10.0"`, "address")
		}
		*into = a.Unmap()
	default:
		return fmt.Errorf("%s%s: no decoder for a %T", path, f.name, f.into)
	}
	return nil
}

// short returns a value, truncated if it is long.
func short(raw []byte) string {
	const most = 60
	s := strings.TrimSpace(string(raw))
	if len(s) > most {
		return strings.ToValidUTF8(s[:most], "") + "…"
	}
	return s
}

// unknown returns the warning about an unknown key.
func unknown(path, key string, fields []field) model.Warning {
	d := model.Warning{
		Field: path + key, Msg: fmt.Sprintf("key %q of %s is not known and is ignored", key, document(path)),
		Hint: "remove it",
	}
	best := 3 // more letters that differ are another word
	for _, f := range fields {
		if n := distance(strings.ToLower(key), strings.ToLower(f.name)); n < best {
			best, d.Hint = n, "the nearest known is "+f.name
		}
	}
	return d
}

// distance returns the edit distance of two strings.
func distance(a, b string) int {
	if len(a) > 64 || len(b) > 64 {
		return 64
	}
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := diagonal
			if a[i] != b[j] {
				cost++
			}
			diagonal = row[j+1]
			row[j+1] = min(cost, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}
