// SPDX-License-Identifier: Apache-2.0

package cni

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

// schema is the set of valid paths of a configuration, as "ranges[][].subnet"; ".*" at the end permits everything
// below.
type schema []string

func listSchema() schema {
	return schema{
		"cniVersion", "cniVersions[]", "name", "disableCheck", "disableGC", "loadOnlyInlinedPlugins", "weft.derivedFrom",
		"plugins[].*",
	}
}

func shimSchema() schema {
	own := schema{
		"cniVersion", "name", "type", "socket", "weft.derivedFrom", "delegates[].*", "capabilities.*", "args.*",
		"runtimeConfig.*", "prevResult.*",
	}
	multus := schema{
		"clusterNetwork", "defaultNetworks[]", "confDir", "cniDir", "binDir", "readinessindicatorfile", "namespaceIsolation",
		"globalNamespaces",
		"systemNamespaces[]", "multusNamespace", "auxiliaryCNIChainName", "kubeconfig", "logFile", "logLevel", "logToStderr",
		"logOptions.*",
		"retryDeleteOnError", "daemonSocketDir", "parallelNetworks",
	}
	return append(own, multus...)
}

// knows reports whether a path, or something below it, is in the schema.
func (s schema) knows(path string) bool {
	for _, known := range s {
		free, isFree := strings.CutSuffix(known, ".*")
		if path == known || path == free {
			return true
		}
		if isFree && (strings.HasPrefix(path, free+".") || strings.HasPrefix(path, free+"[")) {
			return true
		}
		if strings.HasPrefix(known, path+".") || strings.HasPrefix(known, path+"[") {
			return true
		}
	}
	return false
}

// suggest returns the known path that was most likely meant: a similar sibling key, else the same key at another place.
func (s schema) suggest(parent, key string) string {
	var siblings []string
	for _, known := range s {
		rest := known
		if parent != "" {
			var ok bool
			if rest, ok = strings.CutPrefix(known, parent+"."); !ok {
				continue
			}
		}
		if i := strings.IndexAny(rest, ".["); i >= 0 {
			rest = rest[:i]
		}
		if rest != "*" {
			siblings = append(siblings, rest)
		}
	}
	if near := nearest(key, siblings); near != "" {
		return near
	}
	for _, known := range s {
		known = strings.TrimSuffix(known, "[]")
		if i := strings.LastIndexByte(known, '.'); i >= 0 && strings.EqualFold(known[i+1:], key) {
			return known
		}
		if parent != "" && strings.EqualFold(known, key) {
			return known + " (of the plugin itself)"
		}
	}
	return ""
}

// unknown returns the keys of a document that are not in the schema, as path and suggestion.
func (s schema) unknown(raw json.RawMessage) [][2]string {
	var doc any
	if json.Unmarshal(raw, &doc) != nil {
		return nil
	}
	var out [][2]string
	var walk func(path, parent string, v any)
	walk = func(path, parent string, v any) {
		switch v := v.(type) {
		case map[string]any:
			for _, key := range sorted(v) {
				sub := strings.TrimPrefix(path+"."+key, ".")
				if s.knows(sub) {
					walk(sub, sub, v[key])
				} else {
					out = append(out, [2]string{sub, s.suggest(parent, key)})
				}
			}
		case []any:
			for _, e := range v {
				walk(path+"[]", path+"[]", e)
			}
		}
	}
	walk("", "", doc)
	slices.SortStableFunc(out, func(a, b [2]string) int { return strings.Compare(a[0], b[0]) })
	return slices.Compact(out)
}

func sorted(m map[string]any) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

// duplicates returns the paths of duplicate keys of an object; the decoder uses the last one.
func duplicates(raw json.RawMessage) []string {
	var out []string
	dec := json.NewDecoder(bytes.NewReader(raw))
	var value func(path string) error
	object := func(path string) error {
		seen := map[string]bool{}
		for dec.More() {
			t, err := dec.Token()
			if err != nil {
				return err
			}
			key := strings.TrimPrefix(path+"."+fmt.Sprint(t), ".")
			if seen[key] {
				out = append(out, key)
			}
			seen[key] = true
			if err := value(key); err != nil {
				return err
			}
		}
		return nil
	}
	value = func(path string) error {
		t, err := dec.Token()
		if err != nil {
			return err
		}
		switch t {
		case json.Delim('{'):
			err = object(path)
		case json.Delim('['):
			for i := 0; err == nil && dec.More(); i++ {
				err = value(fmt.Sprintf("%s[%d]", path, i))
			}
		default:
			return nil
		}
		if err == nil {
			_, err = dec.Token()
		}
		return err
	}
	_ = value("") // malformed documents were rejected before
	return out
}
