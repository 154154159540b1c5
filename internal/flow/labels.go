// SPDX-License-Identifier: Apache-2.0

package flow

import (
	"maps"
	"slices"
)

// Selects reports whether a selector, which Filter.Add has accepted, selects a pod with these labels.
func Selects(selects string, labels map[string]string) bool {
	terms, ok := selector(selects)
	return ok && !slices.ContainsFunc(terms, func(t term) bool { return !t.matches(labels) })
}

// MissingLabel returns the first label that a selector demands, key or key=value, and that no pod has, with those in its
// place that pods have, sorted; "" if pods have each of them. all are the labels of pods.
func MissingLabel(selects string, all []map[string]string) (missing string, have []string) {
	terms, _ := selector(selects)
	for _, t := range terms {
		if t.not {
			continue
		}
		keys, values := map[string]bool{}, map[string]bool{}
		for _, labels := range all {
			for k := range labels {
				keys[k] = true
			}
			if v, has := labels[t.key]; has {
				values[t.key+"="+v] = true
			}
		}
		switch {
		case len(values) == 0:
			return t.key, slices.Sorted(maps.Keys(keys))
		case !t.any && !values[t.key+"="+t.value]:
			return t.key + "=" + t.value, slices.Sorted(maps.Keys(values))
		}
	}
	return "", nil
}
