// SPDX-License-Identifier: Apache-2.0

package nft

import (
	"bytes"
	"fmt"
	"slices"
	"strings"

	"github.com/weft-net/weft/internal/state"
)

// Taken is the error about an element that another owner has, or one that excludes it (state.Set.Exclusive).
type Taken struct {
	Table string // without its family
	Set   string
	Key   []string
	By    string // the other owner's comment
	// Beside is the other's key where it is another one.
	Beside []string
}

func (t *Taken) Error() string {
	beside := ""
	if t.Beside != nil {
		beside = fmt.Sprintf(", who has %s", strings.Join(t.Beside, " . "))
	}
	return fmt.Sprintf("element %s of %s in table %s is taken by %q%s", strings.Join(t.Key, " . "), t.Set, t.Table, t.By, beside)
}

// rivals tells whether the elements of two sets of a table exclude each other.
func rivals(a set, name string) bool {
	return a.exclusive != "" && strings.HasPrefix(name, a.exclusive)
}

// fullOf are the exclusive sets that elements are to be put into.
func (t *table) fullOf() map[string]bool {
	full := map[string]bool{}
	for _, s := range t.sets {
		if s.exclusive != "" && len(s.elems) > 0 {
			full[s.name] = true
		}
	}
	return full
}

// contested tells whether elements of w are to be put into sets with rivals.
func (t *table) contested() bool {
	return slices.ContainsFunc(t.sets, func(s set) bool { return s.exclusive != "" && len(s.elems) > 0 })
}

// owns tells whether elements are to be put into a set where they pass from owner to owner.
func (t *table) owns() bool {
	return slices.ContainsFunc(t.sets, func(s set) bool { return s.owned && len(s.elems) > 0 })
}

// readRivals reads the elements that could exclude those which want adds: of all sets of their group but their own, where
// the kernel itself refuses the same key twice. It notes in have which of these sets hold any.
func (c *Conn) readRivals(want, have *table) (*Taken, error) {
	if have == nil || !want.contested() {
		return nil, nil
	}
	have.full = want.fullOf()
	for _, s := range have.sets {
		var against []set
		for _, w := range want.sets {
			if len(w.elems) > 0 && w.name != s.name && rivals(w, s.name) {
				against = append(against, w)
			}
		}
		if len(against) == 0 || s.opaque {
			continue
		}
		theirs := s
		theirs.elems = nil
		if err := c.readElements(newTable(have.family, have.name, false), &theirs, nil); err != nil {
			return nil, vanished(err)
		}
		have.full[s.name] = have.full[s.name] || len(theirs.elems) > 0
		for _, w := range against {
			if taken := excludedBy(w, theirs); taken != nil {
				taken.Table = want.name
				return taken, nil
			}
		}
	}
	return nil, nil
}

// excludedBy finds an element of s that one of theirs excludes.
func excludedBy(s, theirs set) *Taken {
	for _, t := range theirs.elems {
		for _, e := range s.elems {
			if (bytes.HasSuffix(e.lo, t.lo) || bytes.HasSuffix(t.lo, e.lo)) && t.comment != e.comment {
				return &Taken{Set: s.name, Key: s.words(e).Key, By: t.comment, Beside: theirs.words(t).Key}
			}
		}
	}
	return nil
}

// takenFrom finds an element that the kernel holds for another owner.
func takenFrom(s, have set) *Taken {
	if s.exclusive == "" {
		return nil
	}
	for _, e := range s.elems {
		i, found := slices.BinarySearchFunc(have.elems, e, compareElems)
		if found && have.elems[i].comment != e.comment {
			return &Taken{Set: s.name, Key: s.words(e).Key, By: have.elems[i].comment}
		}
	}
	return nil
}

// refused finds what of a wanted table others have.
func (c *Conn) refused(want, have *table) error {
	taken, err := c.readRivals(want, have)
	if err != nil {
		return err
	}
	for _, s := range want.sets {
		if taken != nil || have == nil {
			break
		}
		if h, there := have.set(s.name); there && h.sameHead(s) {
			taken = takenFrom(s, h)
		}
	}
	if taken == nil {
		return nil
	}
	taken.Table = want.name
	return taken
}

// alone tells whether elements can be added to a set unread: no other set of the group is known to hold any.
func (t *table) alone(in state.Set) bool {
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

// fill notes that sets hold elements.
func (t *table) fill(in state.Table) {
	for _, s := range in.Sets {
		if s.Exclusive != "" && len(s.Elements) > 0 {
			t.full[s.Name] = true
		}
	}
}

// own leaves of the elements of exclusive and of owned sets those that bear their owner's comment.
func (c *Conn) own(ws []*table) error {
	for _, w := range ws {
		for i := range w.sets {
			s := &w.sets[i]
			if s.exclusive == "" && !s.owned || len(s.elems) == 0 {
				continue
			}
			have := *s
			if err := c.findElements(w, &have, s.elems); err != nil {
				return err
			}
			s.elems = slices.DeleteFunc(slices.Clone(s.elems), func(e elem) bool {
				j, found := slices.BinarySearchFunc(have.elems, e, compareElems)
				return !found || have.elems[j].comment != e.comment
			})
		}
	}
	return nil
}
