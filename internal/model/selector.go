// SPDX-License-Identifier: Apache-2.0

package model

import (
	"maps"
	"slices"
	"strconv"
	"strings"
)

// Selector is Kubernetes' label selector. All its parts must match; the zero value matches everything.
type Selector struct {
	Labels       map[string]string     `json:"matchLabels,omitempty"`
	Requirements []SelectorRequirement `json:"matchExpressions,omitempty"`
}

// SelectorRequirement is one condition on one label.
type SelectorRequirement struct {
	Key    string     `json:"key"`
	Op     SelectorOp `json:"operator"`
	Values []string   `json:"values,omitempty"`
}

// SelectorOp is the operator of a requirement.
type SelectorOp string

// The operators. A missing label is not in any list.
const (
	SelectIn           SelectorOp = "In"
	SelectNotIn        SelectorOp = "NotIn"
	SelectExists       SelectorOp = "Exists"
	SelectDoesNotExist SelectorOp = "DoesNotExist"
)

// Matches reports whether the selector matches the labels. An unknown operator matches nothing.
func (s Selector) Matches(labels map[string]string) bool {
	for k, v := range s.Labels {
		if have, is := labels[k]; !is || have != v {
			return false
		}
	}
	for _, r := range s.Requirements {
		if !r.matches(labels) {
			return false
		}
	}
	return true
}

func (r SelectorRequirement) matches(labels map[string]string) bool {
	have, is := labels[r.Key]
	switch r.Op {
	case SelectIn:
		return is && slices.Contains(r.Values, have)
	case SelectNotIn:
		return !is || !slices.Contains(r.Values, have)
	case SelectExists:
		return is
	case SelectDoesNotExist:
		return !is
	}
	return false
}

// Empty reports whether the selector matches all labels.
func (s Selector) Empty() bool { return len(s.Labels)+len(s.Requirements) == 0 }

// String returns the same text for selectors that differ in order only.
func (s Selector) String() string {
	if s.Empty() {
		return "all"
	}
	var parts []string
	for _, k := range slices.Sorted(maps.Keys(s.Labels)) {
		parts = append(parts, quoted(k)+"="+quoted(s.Labels[k]))
	}
	for _, r := range s.Requirements {
		parts = append(parts, r.String())
	}
	slices.Sort(parts)
	return strings.Join(slices.Compact(parts), ",")
}

func (r SelectorRequirement) String() string {
	values := make([]string, len(r.Values))
	for i, v := range r.Values {
		values[i] = quoted(v)
	}
	slices.Sort(values)
	list := "(" + strings.Join(slices.Compact(values), ",") + ")"
	switch r.Op {
	case SelectIn:
		return quoted(r.Key) + " in " + list
	case SelectNotIn:
		return quoted(r.Key) + " notin " + list
	case SelectExists:
		return quoted(r.Key)
	case SelectDoesNotExist:
		return "!" + quoted(r.Key)
	}
	return quoted(r.Key) + " " + quoted(string(r.Op)) + " " + list
}

// quoted returns the text, in quotation marks unless it is valid in a label, so that different selectors have different
// texts.
func quoted(s string) string {
	if s == "" || strings.ContainsFunc(s, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && !strings.ContainsRune("-_./", r)
	}) {
		return strconv.Quote(s)
	}
	return s
}
