// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"fmt"
	"sync"

	"github.com/weft-net/weft/internal/cluster/store"
)

// shelf holds the objects of one kind. The reflector fills it; each change is told. It is client-go's ReflectorStore.
type shelf struct {
	kind store.Kind
	// fields selects the objects; empty are all.
	fields string
	// tell tells a change; filled is called each time that everything was told.
	tell   func(store.Event)
	filled func()
	// restored: the snapshot had something to say.
	restored bool

	// lean: the objects are told and not kept, but for marks of what was told.
	lean    bool
	marks   map[string]uint64 // by namespace and name
	archive *archive          // nil: none

	mu      sync.Mutex
	objects map[store.Key]store.Object
	faults  map[store.Key]string // that were told
	dirty   bool                 // differs from the snapshot
	live    bool                 // the server has told everything at least once
}

func newShelf(kind store.Kind) *shelf {
	return &shelf{kind: kind, objects: map[store.Key]store.Object{}, faults: map[store.Key]string{}}
}

// get is the object and whether it is there.
func (s *shelf) get(key store.Key) (store.Object, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	o, ok := s.objects[key]
	return o, ok
}

// put keeps an object and tells of it if it is news.
func (s *shelf) put(i *item) {
	s.mu.Lock()
	if i.err != nil {
		said := s.faults[i.object.Key]
		s.faults[i.object.Key] = i.err.Error()
		s.mu.Unlock()
		if said != i.err.Error() {
			s.tell(store.Event{Type: store.Faulty, Object: i.object, Err: i.err})
		}
		return
	}
	delete(s.faults, i.object.Key)
	had, news := s.note(i.object)
	s.mu.Unlock()
	switch {
	case !news:
	case had:
		s.tell(store.Event{Type: store.Modified, Object: i.object})
	default:
		s.tell(store.Event{Type: store.Added, Object: i.object})
	}
}

func (s *shelf) remove(key store.Key) {
	s.mu.Lock()
	was, had := s.forget(key)
	delete(s.faults, key)
	s.dirty = s.dirty || had
	s.mu.Unlock()
	if had {
		s.tell(store.Event{Type: store.Deleted, Object: was})
	}
}

// Add is put.
func (s *shelf) Add(obj any) error { return s.Update(obj) }

// Update is put.
func (s *shelf) Update(obj any) error {
	i, ok := obj.(*item)
	if !ok {
		return fmt.Errorf("%s: %T is no item", s.kind.Resource, obj)
	}
	s.put(i)
	return nil
}

// Delete takes the object away.
func (s *shelf) Delete(obj any) error {
	i, ok := obj.(*item)
	if !ok {
		return fmt.Errorf("%s: %T is no item", s.kind.Resource, obj)
	}
	s.remove(i.object.Key)
	return nil
}

// Replace makes the shelf hold these objects and no others.
func (s *shelf) Replace(all []any, _ string) error {
	now := map[store.Key]bool{}
	for _, obj := range all {
		i, ok := obj.(*item)
		if !ok {
			return fmt.Errorf("%s: %T is no item", s.kind.Resource, obj)
		}
		now[i.object.Key] = true
		s.put(i)
	}
	for _, key := range s.keys() {
		if !now[key] {
			s.remove(key)
		}
	}
	s.mu.Lock()
	s.dirty = s.dirty || !s.live
	if !s.live {
		s.archive.add(archived{Whole: true})
	}
	s.live = true
	s.mu.Unlock()
	s.filled()
	return nil
}

// Resync is nothing: there are no resyncs.
func (s *shelf) Resync() error { return nil }

func (s *shelf) all() []store.Object {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := make([]store.Object, 0, len(s.objects))
	for _, o := range s.objects {
		out = append(out, o)
	}
	return out
}

// unsaved is the shelf's content when it was told by the server and differs from the snapshot; it counts as saved then.
func (s *shelf) unsaved() ([]store.Object, bool) {
	s.mu.Lock()
	due := s.live && s.dirty
	if due {
		s.dirty = false
	}
	s.mu.Unlock()
	if !due {
		return nil, false
	}
	return s.all(), true
}

// again says that what unsaved gave could not be saved.
func (s *shelf) again() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.dirty = true
}
