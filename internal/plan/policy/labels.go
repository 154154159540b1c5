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

// hash is the same for equal labels.
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

// selector is model.Selector, made to be asked often.
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

// term is model.PodPeer, made to be asked often.
type term struct {
	namespace string // empty: spaces selects
	spaces    selector
	byName    bool // spaces asks for nothing but names
	pods      selector
}

func compileTerm(in model.PodPeer) term {
	return term{
		namespace: in.Namespace, spaces: compileSelector(in.Namespaces), byName: asksNames(in.Namespaces), pods: compileSelector(in.Pods),
	}
}

// nameLabel is the label that every namespace has, with its name.
const nameLabel = "kubernetes.io/metadata.name"

func asksNames(s model.Selector) bool {
	for k := range s.Labels {
		if k != nameLabel {
			return false
		}
	}
	return !slices.ContainsFunc(s.Requirements, func(r model.SelectorRequirement) bool { return r.Key != nameLabel })
}

func (t term) matches(id *identity) bool { return t.inSpace(id.space) && t.pods.matches(id.labels) }

// inSpace tells whether the term is about the namespace at all. One that is not known yet is selected by its name alone.
func (t term) inSpace(s *space) bool {
	if t.namespace != "" {
		return t.namespace == s.name
	}
	return (s.known || t.byName) && t.spaces.matches(s.labels)
}

// unsure tells whether the term might be about the namespace, which is not known yet.
func (t term) unsure(s *space) bool { return t.namespace == "" && !t.byName && !s.known }
