// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"hash/maphash"
	"sync"

	"github.com/weft-net/weft/internal/cluster/store"
)

// Shared are the decoded objects of several stores in one process, of which each object of the server is one: for a
// simulation of thousands of nodes, which all have the objects of all. Such stores keep hashes of objects only, and make
// the same requests as any other.
type Shared struct {
	seed maphash.Seed

	mu    sync.RWMutex
	items map[uint64]*item // by the object in the server's JSON
}

// NewShared returns no objects yet. The stores must have the same configuration but for the node.
func NewShared() *Shared { return &Shared{seed: maphash.MakeSeed(), items: map[uint64]*item{}} }

// newItem is newItem, once for each version of an object. A nil Shared decodes each time.
func (s *Shared) newItem(kind store.Kind, raw []byte, keep reduce) (*item, error) {
	if s == nil {
		return newItem(kind, raw, keep)
	}
	key := maphash.Bytes(s.seed, raw)
	s.mu.RLock()
	i := s.items[key]
	s.mu.RUnlock()
	if i != nil {
		return i, nil
	}
	i, err := newItem(kind, raw, keep)
	if err == nil {
		s.mu.Lock()
		s.items[key] = i
		s.mu.Unlock()
	}
	return i, err
}
