// SPDX-License-Identifier: Apache-2.0

package nft

import (
	"bytes"
	"fmt"
	"slices"
	"strings"

	"github.com/weft-net/weft/internal/kernel/nft/lang"
	"github.com/weft-net/weft/internal/state"
)

// Taken is the error about an element of another owner, or one that excludes the wanted one (state.Set.Exclusive).
type Taken struct {
	Table string // without its family
	Set   string
	Key   []string
	By    string // the other owner's comment
	// ConflictingKey is the other owner's key if it differs.
	ConflictingKey []string
}

func (t *Taken) Error() string {
	also := ""
	if t.ConflictingKey != nil {
		also = fmt.Sprintf(", which has %s", strings.Join(t.ConflictingKey, " . "))
	}
	return fmt.Sprintf("element %s of %s in table %s is taken by %q%s", strings.Join(t.Key, " . "), t.Set, t.Table,
		t.By, also)
}

// exclude reports whether the elements of two sets of a table exclude each other.
func exclude(a lang.Set, name string) bool {
	return a.Exclusive != "" && strings.HasPrefix(name, a.Exclusive)
}

// fullOf returns the exclusive sets that elements are added to.
func (t *table) fullOf() map[string]bool {
	full := map[string]bool{}
	for _, s := range t.Sets {
		if s.Exclusive != "" && len(s.Elements) > 0 {
			full[s.Name] = true
		}
	}
	return full
}

// contested reports whether elements are added to exclusive sets.
func (t *table) contested() bool {
	return slices.ContainsFunc(t.Sets, func(s lang.Set) bool { return s.Exclusive != "" && len(s.Elements) > 0 })
}

// owns reports whether elements are added to owned sets.
func (t *table) owns() bool {
	return slices.ContainsFunc(t.Sets, func(s lang.Set) bool { return s.Owned && len(s.Elements) > 0 })
}

// readExclusive reads the elements that may exclude those which want adds: of all sets of their group except their own,
// for which the kernel itself refuses an existing key. It records in have which of these sets have any.
func (r *reader) readExclusive(want, have *table) (*Taken, error) {
	if have == nil || !want.contested() {
		return nil, nil
	}
	have.full = want.fullOf()
	for _, s := range have.Sets {
		var against []lang.Set
		for _, w := range want.Sets {
			if len(w.Elements) > 0 && w.Name != s.Name && exclude(w, s.Name) {
				against = append(against, w)
			}
		}
		if len(against) == 0 || s.Opaque {
			continue
		}
		theirs := s
		theirs.Elements = nil
		if err := r.readElements(newTable(have.Family, have.Name, false), &theirs, nil); err != nil {
			return nil, vanished(err)
		}
		have.full[s.Name] = have.full[s.Name] || len(theirs.Elements) > 0
		for _, w := range against {
			if taken := excludedBy(w, theirs); taken != nil {
				taken.Table = want.Name
				return taken, nil
			}
		}
	}
	return nil, nil
}

// excludedBy finds an element of s that one of theirs excludes.
func excludedBy(s, theirs lang.Set) *Taken {
	for _, t := range theirs.Elements {
		for _, e := range s.Elements {
			if (bytes.HasSuffix(e.Key, t.Key) || bytes.HasSuffix(t.Key, e.Key)) && t.Comment != e.Comment {
				return &Taken{Set: s.Name, Key: s.State(e).Key, By: t.Comment, ConflictingKey: theirs.State(t).Key}
			}
		}
	}
	return nil
}

// takenFrom finds an element that belongs to another owner.
func takenFrom(s, have lang.Set) *Taken {
	if s.Exclusive == "" {
		return nil
	}
	for _, e := range s.Elements {
		i, found := slices.BinarySearchFunc(have.Elements, e, lang.CompareElements)
		if found && have.Elements[i].Comment != e.Comment {
			return &Taken{Set: s.Name, Key: s.State(e).Key, By: have.Elements[i].Comment}
		}
	}
	return nil
}

// refused finds an element of a wanted table that belongs to another owner.
func (r *reader) refused(want, have *table) error {
	taken, err := r.readExclusive(want, have)
	if err != nil {
		return err
	}
	for _, s := range want.Sets {
		if taken != nil || have == nil {
			break
		}
		if h, there := have.Set(s.Name); there && h.SameHead(s) {
			taken = takenFrom(s, h)
		}
	}
	if taken == nil {
		return nil
	}
	taken.Table = want.Name
	return taken
}

// unreadable reports whether elements can be added to a set without reading: no other set of the group is known to have any.
func (t *table) unreadable(in state.Set) bool {
	if in.Exclusive == "" || len(in.Elements) == 0 {
		return true
	}
	if t.full == nil {
		return false
	}
	for name, full := range t.full {
		if full && name != in.Name && strings.HasPrefix(name, in.Exclusive) {
			return false
		}
	}
	return true
}

// fill records that sets have elements.
func (t *table) fill(in state.Table) {
	for _, s := range in.Sets {
		if s.Exclusive != "" && len(s.Elements) > 0 {
			t.full[s.Name] = true
		}
	}
}

// own keeps, of the elements of exclusive and of owned sets, those that have their owner's comment.
func (r *reader) own(ws []*table) error {
	for _, w := range ws {
		for i := range w.Sets {
			s := &w.Sets[i]
			if s.Exclusive == "" && !s.Owned || len(s.Elements) == 0 {
				continue
			}
			have := *s
			if err := r.findElements(w, &have, s.Elements); err != nil {
				return err
			}
			s.Elements = slices.DeleteFunc(slices.Clone(s.Elements), func(e lang.Element) bool {
				j, found := slices.BinarySearchFunc(have.Elements, e, lang.CompareElements)
				return !found || have.Elements[j].Comment != e.Comment
			})
		}
	}
	return nil
}
