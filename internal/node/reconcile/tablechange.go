// SPDX-License-Identifier: Apache-2.0

package reconcile

import (
	"reflect"
	"slices"
	"strings"

	"github.com/weft-net/weft/internal/state"
)

// The sets of the mesh's tables have an element or more for each peer. If a peer joins, only its elements are written:
// to read a table of 20,000 elements back costs more than everything else.

// tableChange returns the elements by which a table differs from the one in force; false if anything else differs.
func tableChange(old, now state.Table) (state.TableChange, bool) {
	c := state.TableChange{Family: now.Family, Name: now.Name}
	if old.Shared || now.Shared || old.Family != now.Family || old.Name != now.Name || len(old.Sets) != len(now.Sets) ||
		!reflect.DeepEqual(old.Chains, now.Chains) {
		return c, false
	}
	for i, is := range now.Sets {
		was := old.Sets[i]
		gone, added := changedElements(was.Elements, is.Elements)
		was.Elements, is.Elements = nil, nil
		if !reflect.DeepEqual(was, is) {
			return c, false
		}
		if len(gone) > 0 {
			was.Elements = gone
			c.DeleteElements = append(c.DeleteElements, was)
		}
		if len(added) > 0 {
			is.Elements = added
			c.AddElements = append(c.AddElements, is)
		}
	}
	return c, true
}

// changedElements returns the elements of one set that another does not have, and the other way around. Both may have an
// element several times: two peers may have one address. An element whose value differs is in both results.
func changedElements(old, now []state.Element) (gone, added []state.Element) {
	if gone, added, ok := fewChanges(old, now); ok {
		return gone, added
	}
	return onlyIn(old, ids(now)), onlyIn(now, ids(old))
}

const (
	// mostChanges is how many changed elements are looked for in the other set one by one, and lookahead how many
	// elements one place may have more or less.
	mostChanges, lookahead = 16, 8
)

// fewChanges is changedElements for sets of thousands of elements in nearly the same order; false if they are not.
func fewChanges(old, now []state.Element) (gone, added []state.Element, ok bool) {
	i, j := 0, 0
	for i < len(old) || j < len(now) {
		if i < len(old) && j < len(now) && sameElement(&old[i], &now[j]) {
			i, j = i+1, j+1
			continue
		}
		less, more := 1, 1 // replaced, unless they meet again
		switch {
		case i == len(old):
			less = 0
		case j == len(now):
			more = 0
		default:
			for d := 1; d <= lookahead; d++ {
				if i+d < len(old) && sameElement(&old[i+d], &now[j]) {
					less, more = d, 0
					break
				}
				if j+d < len(now) && sameElement(&old[i], &now[j+d]) {
					less, more = 0, d
					break
				}
			}
		}
		gone, added = append(gone, old[i:i+less]...), append(added, now[j:j+more]...)
		if i, j = i+less, j+more; len(gone)+len(added) > mostChanges {
			return nil, nil, false
		}
	}
	without := func(some, all []state.Element) (out []state.Element) {
		for i := range some {
			if !containsElement(all, &some[i]) && !containsElement(out, &some[i]) {
				out = append(out, some[i])
			}
		}
		return out
	}
	return without(gone, now), without(added, old), true
}

// containsElement copies no element: there may be tens of thousands.
func containsElement(all []state.Element, e *state.Element) bool {
	for i := range all {
		if sameElement(&all[i], e) {
			return true
		}
	}
	return false
}

func ids(all []state.Element) map[string]bool {
	out := make(map[string]bool, len(all))
	for _, e := range all {
		out[elementID(e)] = true
	}
	return out
}

// onlyIn returns the elements that are not among others, each once. It adds them there.
func onlyIn(some []state.Element, others map[string]bool) (out []state.Element) {
	for _, e := range some {
		if id := elementID(e); !others[id] {
			others[id] = true
			out = append(out, e)
		}
	}
	return out
}

// sameElement compares two elements. Most are copies of one, whose key is the same in memory.
func sameElement(a, b *state.Element) bool {
	key := len(a.Key) == len(b.Key) && (len(a.Key) == 0 || &a.Key[0] == &b.Key[0] || slices.Equal(a.Key, b.Key))
	return key && slices.Equal(a.Val, b.Val) && a.Stateful == b.Stateful && a.Comment == b.Comment && a.Shared == b.Shared
}

// elementID identifies an element with its value. No part contains a control character.
func elementID(e state.Element) string {
	shared := ""
	if e.Shared {
		shared = "shared"
	}
	return strings.Join([]string{
		strings.Join(e.Key, "\x01"), strings.Join(e.Val, "\x01"), e.Stateful, e.Comment, shared,
	}, "\x00")
}
