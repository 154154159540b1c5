// SPDX-License-Identifier: Apache-2.0

package flow

import (
	"encoding/json"
	"iter"
	"maps"
	"slices"
	"strings"
	"unique"
)

// LabelSet are the labels of a pod at some time. Equal sets are equal values, and are kept once, however many flows have
// them. The zero value: they are not known.
type LabelSet struct{ text unique.Handle[string] }

// separator ends a key and a value in the text of a LabelSet. Neither has one.
const separator = "\x00"

// NewLabelSet returns a set of labels, which may be empty.
func NewLabelSet(labels map[string]string) LabelSet {
	var b strings.Builder
	for _, key := range slices.Sorted(maps.Keys(labels)) {
		b.WriteString(key + separator + labels[key] + separator)
	}
	return LabelSet{unique.Make(b.String())}
}

// Known reports whether the labels are known.
func (s LabelSet) Known() bool { return s != LabelSet{} }

// All are the labels, sorted by key.
func (s LabelSet) All() iter.Seq2[string, string] {
	return func(yield func(key, value string) bool) {
		if !s.Known() {
			return
		}
		for rest := s.text.Value(); rest != ""; {
			var key, value string
			key, rest, _ = strings.Cut(rest, separator)
			value, rest, _ = strings.Cut(rest, separator)
			if !yield(key, value) {
				return
			}
		}
	}
}

// Map returns the labels; nil if they are not known.
func (s LabelSet) Map() map[string]string {
	if !s.Known() {
		return nil
	}
	out := map[string]string{}
	maps.Insert(out, s.All())
	return out
}

// get returns the value of a label.
func (s LabelSet) get(key string) (value string, has bool) {
	for k, v := range s.All() {
		if k == key {
			return v, true
		}
	}
	return "", false
}

// MarshalJSON implements json.Marshaler.
func (s LabelSet) MarshalJSON() ([]byte, error) { return json.Marshal(s.Map()) }

// UnmarshalJSON implements json.Unmarshaler.
func (s *LabelSet) UnmarshalJSON(b []byte) error {
	var labels map[string]string
	if err := json.Unmarshal(b, &labels); err != nil {
		return err
	}
	if *s = (LabelSet{}); labels != nil {
		*s = NewLabelSet(labels)
	}
	return nil
}

// WithoutLabels returns a line without the labels of pods.
func (l Line) WithoutLabels() Line {
	if h := l.Holder; h != nil && h.Identity != nil && h.Identity.Labels.Known() {
		holder, id := *h, *h.Identity
		id.Labels = LabelSet{}
		holder.Identity, l.Holder = &id, &holder
	}
	if l.Flow != nil {
		l.Flow = l.Flow.WithoutLabels()
	}
	return l
}

// WithoutLabels returns the flow without the labels of pods.
func (r *Record) WithoutLabels() *Record {
	via := r.Via != nil && r.Via.Labels.Known()
	if !r.From.Labels.Known() && !r.To.Labels.Known() && !via {
		return r
	}
	out := *r
	out.From.Labels, out.To.Labels = LabelSet{}, LabelSet{}
	if via {
		end := *r.Via
		end.Labels, out.Via = LabelSet{}, &end
	}
	return &out
}

// selects reports whether a selector, which Filter.Add has accepted, selects a pod with these labels.
func selects(selectorText string, get func(key string) (string, bool)) bool {
	terms, ok := selector(selectorText)
	return ok && !slices.ContainsFunc(terms, func(t term) bool { return !t.matches(get) })
}

// Selects reports whether a selector, which Filter.Add has accepted, selects a pod with these labels.
func Selects(selectorText string, labels map[string]string) bool {
	return selects(selectorText, getter(labels))
}

func getter(labels map[string]string) func(key string) (string, bool) {
	return func(key string) (string, bool) {
		value, has := labels[key]
		return value, has
	}
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
