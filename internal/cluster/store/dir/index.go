// SPDX-License-Identifier: Apache-2.0

package dir

import (
	"cmp"
	"slices"

	"github.com/weft-net/weft/internal/cluster/store"
	"github.com/weft-net/weft/internal/model"
)

// index is where each object is.
type index struct {
	// places are in the order of the files and then of the lines. Of several the first counts.
	places map[store.Key][]entry
	twice  map[store.Key]bool // those with several
}

func newIndex() index { return index{places: map[store.Key][]entry{}, twice: map[store.Key]bool{}} }

// get returns the entry that counts.
func (x index) get(key store.Key) (entry, bool) {
	all := x.places[key]
	if len(all) == 0 {
		return entry{}, false
	}
	return all[0], true
}

// first reports whether an entry of the index is the one that counts.
func (x index) first(e entry) bool {
	return len(x.twice) == 0 || !x.twice[e.Key] || x.places[e.Key][0].compare(e) == 0
}

// compare compares the places of two entries.
func (e entry) compare(o entry) int {
	return cmp.Or(cmp.Compare(e.file, o.file), cmp.Compare(e.line, o.line), cmp.Compare(e.item, o.item))
}

// replace replaces the entries of a version of a file with those of the next one; either may be nil. It returns the
// keys whose objects changed.
func (x index) replace(old, next *file) (changed map[store.Key]bool) {
	was := map[store.Key]string{}
	for _, e := range old.all() {
		if all := x.places[e.Key]; len(all) > 0 {
			if _, noted := was[e.Key]; !noted {
				was[e.Key] = all[0].Version
			}
			x.places[e.Key] = slices.DeleteFunc(all, func(o entry) bool { return o.file == e.file })
		}
	}
	for _, e := range next.all() {
		all := x.places[e.Key]
		if _, noted := was[e.Key]; !noted {
			was[e.Key] = ""
			if len(all) > 0 {
				was[e.Key] = all[0].Version
			}
		}
		i, _ := slices.BinarySearchFunc(all, e, entry.compare)
		x.places[e.Key] = slices.Insert(all, i, e)
	}
	changed = map[store.Key]bool{}
	for key, version := range was {
		now, ok := x.get(key)
		if !ok {
			delete(x.places, key)
		}
		if delete(x.twice, key); len(x.places[key]) > 1 {
			x.twice[key] = true
		}
		if now.Version != version {
			changed[key] = true
		}
	}
	return changed
}

// all returns the entries of a file that may be nil.
func (f *file) all() []entry {
	if f == nil {
		return nil
	}
	return f.entries
}

// problems returns an error for each object that is there twice.
func (x index) problems() (problems []error) {
	var twice []entry
	for key := range x.twice {
		twice = append(twice, x.places[key][1:]...)
	}
	slices.SortFunc(twice, entry.compare)
	for _, e := range twice {
		first := x.places[e.Key][0]
		problems = append(problems, model.Errorf(model.CodeInvalidConf, "take one of them out; until then the first counts",
			"%s is there twice: in %s line %d and in %s line %d", e.Key, first.file, first.line, e.file, e.line))
	}
	return problems
}
