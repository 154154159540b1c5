// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"cmp"
	"hash/fnv"
	"slices"
	"unique"

	"github.com/weft-net/weft/internal/model"
)

// text is a string that is kept once, however many pods have it as a label.
type text = unique.Handle[string]

// label is one label.
type label struct{ key, value text }

// labels are those of an object, sorted by key.
type labels []label

func intern(in map[string]string) labels {
	out := make(labels, 0, len(in))
	for k, v := range in {
		out = append(out, label{unique.Make(k), unique.Make(v)})
	}
	slices.SortFunc(out, func(a, b label) int { return cmp.Compare(a.key.Value(), b.key.Value()) })
	return out
}

func (ls labels) get(key text) (text, bool) {
	for _, l := range ls {
		if l.key == key {
			return l.value, true
		}
	}
	return text{}, false
}

// hash returns equal values for equal labels.
func (ls labels) hash() uint64 {
	h := fnv.New64a()
	for _, l := range ls {
		_, _ = h.Write([]byte(l.key.Value()))
		_, _ = h.Write([]byte{0})
		_, _ = h.Write([]byte(l.value.Value()))
		_, _ = h.Write([]byte{0})
	}
	return h.Sum64()
}

// selector is model.Selector, compiled for fast evaluation.
type selector struct {
	equal []label
	needs []need
}

type need struct {
	key    text
	op     model.SelectorOp
	values []text
}

func compileSelector(in model.Selector) selector {
	s := selector{equal: intern(in.Labels)}
	for _, r := range in.Requirements {
		n := need{key: unique.Make(r.Key), op: r.Op}
		for _, v := range r.Values {
			n.values = append(n.values, unique.Make(v))
		}
		s.needs = append(s.needs, n)
	}
	return s
}

func (s selector) matches(ls labels) bool {
	for _, l := range s.equal {
		if v, is := ls.get(l.key); !is || v != l.value {
			return false
		}
	}
	for _, n := range s.needs {
		v, is := ls.get(n.key)
		switch n.op {
		case model.SelectIn:
			is = is && slices.Contains(n.values, v)
		case model.SelectNotIn:
			is = !is || !slices.Contains(n.values, v)
		case model.SelectExists:
		case model.SelectDoesNotExist:
			is = !is
		default:
			is = false
		}
		if !is {
			return false
		}
	}
	return true
}
