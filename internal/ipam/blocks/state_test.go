// SPDX-License-Identifier: Apache-2.0

package blocks

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strconv"
	"sync"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/weft-net/weft/internal/cluster/store"
)

// heap keeps objects in memory, for tests that make so many requests that a directory would take minutes. It decides as
// a server does: by versions. It has no watches.
type heap struct {
	mu      sync.Mutex
	objects map[store.Key]store.Object
	version int
}

func newHeap(t testing.TB, manifests ...string) *heap {
	h := &heap{objects: map[store.Key]store.Object{}}
	for _, text := range manifests {
		raw, err := yaml.YAMLToJSON([]byte(text))
		if err != nil {
			t.Fatal(err)
		}
		o, err := store.NewObject(raw)
		if err != nil {
			t.Fatal(err)
		}
		h.put(o)
	}
	return h
}

// put is called with the lock, or before other goroutines start.
func (h *heap) put(o store.Object) store.Object {
	h.version++
	o.Version = strconv.Itoa(h.version)
	h.objects[o.Key] = o
	return o
}

func (h *heap) Get(_ context.Context, _ store.Kind, key store.Key) (store.Object, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	o, there := h.objects[key]
	if !there {
		return o, store.ErrNotFound
	}
	return o, nil
}

func (h *heap) List(_ context.Context, kind store.Kind) ([]store.Object, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	var out []store.Object
	for _, o := range slices.SortedFunc(maps.Values(h.objects), func(a, b store.Object) int {
		return cmp.Compare(a.Key.Name, b.Key.Name)
	}) {
		if o.Key.Of(kind) {
			out = append(out, o)
		}
	}
	return out, nil
}

func (h *heap) Watch(context.Context, ...store.Kind) (<-chan store.Event, error) {
	return make(chan store.Event), nil
}

func (h *heap) Create(_ context.Context, _ store.Kind, o store.Object) (store.Object, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if _, there := h.objects[o.Key]; there {
		return o, store.ErrExists
	}
	return h.put(o), nil
}

func (h *heap) CompareAndSwap(_ context.Context, _ store.Kind, version string, o store.Object) (store.Object, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	was, there := h.objects[o.Key]
	switch {
	case !there:
		return o, store.ErrNotFound
	case was.Version != version:
		return o, store.ErrConflict
	}
	return h.put(o), nil
}

func (h *heap) CompareAndSwapStatus(
	ctx context.Context, kind store.Kind, version string, o store.Object,
) (store.Object, error) {
	return h.CompareAndSwap(ctx, kind, version, o)
}

func (h *heap) Delete(_ context.Context, _ store.Kind, key store.Key, version string) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	was, there := h.objects[key]
	switch {
	case !there:
		return store.ErrNotFound
	case was.Version != version:
		return store.ErrConflict
	}
	delete(h.objects, key)
	return nil
}
