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
	from := 0
	for from < len(old) && from < len(now) && sameElement(old[from], now[from]) {
		from++
	}
	end := 0
	for end < len(old)-from && end < len(now)-from && sameElement(old[len(old)-1-end], now[len(now)-1-end]) {
		end++
	}
	return onlyIn(old[from:len(old)-end], now, from, len(now)-end), onlyIn(now[from:len(now)-end], old, from, len(old)-end)
}

// onlyIn returns some elements without those that are in all; these are most likely between from and to.
func onlyIn(some, all []state.Element, from, to int) []state.Element {
	var out []state.Element
	if len(some) == 0 {
		return nil
	}
	const few = 8
	if len(some) <= few {
		for _, e := range some {
			is := func(o state.Element) bool { return sameElement(e, o) }
			if !slices.ContainsFunc(all[from:to], is) && !slices.ContainsFunc(all, is) && !slices.ContainsFunc(out, is) {
				out = append(out, e)
			}
		}
		return out
	}
	have := make(map[string]bool, len(all))
	for _, e := range all {
		have[elementID(e)] = true
	}
	for _, e := range some {
		if id := elementID(e); !have[id] {
			have[id] = true
			out = append(out, e)
		}
	}
	return out
}

func sameElement(a, b state.Element) bool {
	return slices.Equal(a.Key, b.Key) && slices.Equal(a.Val, b.Val) && a.Stateful == b.Stateful &&
		a.Comment == b.Comment && a.Shared == b.Shared
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
