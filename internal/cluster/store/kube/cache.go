// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/weft-net/weft/internal/cluster/store"
)

// objectCache holds the objects of one kind. The reflector fills it; each change is sent. It implements client-go's
// ReflectorStore.
type objectCache struct {
	kind store.Kind
	// fields is the field selector; empty selects all.
	fields string
	// notify sends a change; synced is called each time that all objects were sent.
	notify func(store.Event)
	synced func()
	// restored: the snapshot was read.
	restored bool

	// hashesOnly: objects are sent and not kept, except for a hash of their version.
	hashesOnly bool
	// early: the restored objects are complete at once, and not only when the server cannot be reached.
	early    bool
	hashes   map[string]uint64 // by namespace and name
	archive  *archive          // nil: none
	outdated atomic.Bool       // the snapshot of an earlier version, which the archive replaces, exists

	mu       sync.Mutex
	objects  map[store.Key]store.Object
	reported map[store.Key]string // errors that were reported
	dirty    bool                 // differs from the snapshot
	live     bool                 // all objects were received from the server at least once
}

func newObjectCache(kind store.Kind) *objectCache {
	return &objectCache{kind: kind, objects: map[store.Key]store.Object{}, reported: map[store.Key]string{}}
}

// get returns the object and whether it exists.
func (s *objectCache) get(key store.Key) (store.Object, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	o, ok := s.objects[key]
	return o, ok
}

// put stores an object and sends it if it has changed.
func (s *objectCache) put(i *item) {
	s.mu.Lock()
	if i.err != nil {
		said := s.reported[i.object.Key]
		s.reported[i.object.Key] = i.err.Error()
		s.mu.Unlock()
		if said != i.err.Error() {
			s.notify(store.Event{Type: store.Faulty, Object: i.object, Err: i.err})
		}
		return
	}
	delete(s.reported, i.object.Key)
	had, changed := s.storeLocked(i.object)
	s.mu.Unlock()
	switch {
	case !changed:
	case had:
		s.notify(store.Event{Type: store.Modified, Object: i.object})
	default:
		s.notify(store.Event{Type: store.Added, Object: i.object})
	}
}

func (s *objectCache) remove(key store.Key) {
	s.mu.Lock()
	was, had := s.deleteLocked(key)
	delete(s.reported, key)
	s.dirty = s.dirty || had
	s.mu.Unlock()
	if had {
		s.notify(store.Event{Type: store.Deleted, Object: was})
	}
}

// Add is put.
func (s *objectCache) Add(obj any) error { return s.Update(obj) }

// Update is put.
func (s *objectCache) Update(obj any) error {
	i, ok := obj.(*item)
	if !ok {
		return fmt.Errorf("%s: %T is no item", s.kind.Resource, obj)
	}
	s.put(i)
	return nil
}

// Delete removes the object.
func (s *objectCache) Delete(obj any) error {
	i, ok := obj.(*item)
	if !ok {
		return fmt.Errorf("%s: %T is no item", s.kind.Resource, obj)
	}
	s.remove(i.object.Key)
	return nil
}

// Replace replaces all objects.
func (s *objectCache) Replace(all []any, _ string) error {
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
		s.archive.add(archiveLine{Whole: true})
	}
	s.live = true
	s.mu.Unlock()
	s.synced()
	return nil
}

// Resync does nothing: there are no resyncs.
func (s *objectCache) Resync() error { return nil }

func (s *objectCache) all() []store.Object {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := make([]store.Object, 0, len(s.objects))
	for _, o := range s.objects {
		out = append(out, o)
	}
	return out
}

// takeDirty returns the objects if they are from the server and differ from the snapshot, and marks them as saved.
func (s *objectCache) takeDirty() ([]store.Object, bool) {
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

// markDirty marks the objects as unsaved after a failed save.
func (s *objectCache) markDirty() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.dirty = true
}
