// SPDX-License-Identifier: Apache-2.0

package facts

import (
	"github.com/weft-net/weft/internal/cluster/store"
	"github.com/weft-net/weft/internal/model"
)

// objects are the known objects by kind. A snapshot shares with the last one what it has of the kinds that did not
// change: pods of this node change all the time, and there may be ten thousand nodes.
type objects struct {
	kinds map[kind]map[store.Key]store.Object
	// changed are the kinds that changed since the last snapshot.
	changed map[kind]bool
}

// kind is what Key.Of compares.
type kind struct{ group, kind string }

func kindOf(k store.Key) kind { return kind{k.Group, k.Kind} }

func newObjects() *objects {
	return &objects{kinds: map[kind]map[store.Key]store.Object{}, changed: map[kind]bool{}}
}

func (s *objects) put(o store.Object) {
	k := kindOf(o.Key)
	if s.kinds[k] == nil {
		s.kinds[k] = map[store.Key]store.Object{}
	}
	s.kinds[k][o.Key] = o
	s.changed[k] = true
}

func (s *objects) delete(key store.Key) {
	k := kindOf(key)
	delete(s.kinds[k], key)
	s.changed[k] = true
}

// cluster returns a snapshot, and the errors of the kinds that changed. last is the last one, nil at first.
func (s *objects) cluster(last *model.Cluster) (model.Cluster, []error) {
	n := 0
	for k := range s.changed {
		n += len(s.kinds[k])
	}
	all := make([]store.Object, 0, n)
	for k := range s.changed {
		for _, o := range s.kinds[k] {
			all = append(all, o)
		}
	}
	c, problems := store.Cluster(all)
	if last != nil {
		same := func(k store.Kind) bool { return !s.changed[kind{k.Group, k.Kind}] }
		if same(store.Nodes()) {
			c.Nodes = last.Nodes
		}
		if same(store.Pods()) {
			c.Pods = last.Pods
		}
		if same(store.Namespaces()) {
			c.Namespaces = last.Namespaces
		}
		if same(store.NetworkAttachments()) {
			c.Networks = last.Networks
		}
		if same(store.AddressPools()) {
			c.Pools = last.Pools
		}
		if same(store.AddressBlocks()) {
			c.Blocks = last.Blocks
		}
	}
	clear(s.changed)
	return c, problems
}
