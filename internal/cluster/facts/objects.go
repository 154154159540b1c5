// SPDX-License-Identifier: Apache-2.0

package facts

import (
	"maps"
	"slices"
	"strings"

	"github.com/weft-net/weft/internal/cluster/store"
	"github.com/weft-net/weft/internal/model"
)

// objects are the known objects by kind. A snapshot shares with the last one what it has of the kinds that did not
// change: pods of this node change all the time, and there may be ten thousand nodes.
type objects struct {
	kinds map[kind]map[store.Key]store.Object
	// changed are the kinds that changed since the last snapshot.
	changed map[kind]bool
	// self is this node. Of other nodes no annotations are kept: what they publish is in fields of its own.
	self string
	// nodes are the changes of nodes since the last snapshot, which has the others; nil is a node that was deleted. Of all
	// objects only nodes are that many, so nothing else is kept of them.
	nodes map[string]*model.Node
	// invalid are the errors of nodes since the last snapshot.
	invalid []error
}

// kind is what Key.Of compares.
type kind struct{ group, kind string }

func kindOf(k store.Key) kind { return kind{k.Group, k.Kind} }

func newObjects(self string) *objects {
	return &objects{
		kinds: map[kind]map[store.Key]store.Object{}, changed: map[kind]bool{}, self: self, nodes: map[string]*model.Node{},
	}
}

func (s *objects) put(o store.Object) {
	k := kindOf(o.Key)
	if o.Key.Of(store.Nodes()) {
		s.putNode(o)
		return
	}
	if s.kinds[k] == nil {
		s.kinds[k] = map[store.Key]store.Object{}
	}
	s.kinds[k][o.Key] = o
	s.changed[k] = true
}

func (s *objects) putNode(o store.Object) {
	n, err := o.Node()
	if err != nil {
		s.nodes[o.Key.Name], s.invalid = nil, append(s.invalid, err)
		return
	}
	if n.Name != s.self {
		n.Annotations = nil
	}
	s.nodes[n.Name] = &n
}

func (s *objects) delete(key store.Key) {
	k := kindOf(key)
	if key.Of(store.Nodes()) {
		s.nodes[key.Name] = nil
		return
	}
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
	problems, s.invalid = append(problems, s.invalid...), nil
	var nodes []model.Node
	if last != nil {
		nodes = last.Nodes
	}
	if c.Nodes = nodes; len(s.nodes) > 0 {
		c.Nodes = s.mergeNodes(nodes)
		s.nodes = map[string]*model.Node{} // the first ones are many
	}
	if last != nil {
		same := func(k store.Kind) bool { return !s.changed[kind{k.Group, k.Kind}] }
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

// find returns the place of a node among sorted ones.
func find(nodes []model.Node, name string) (i int, found bool) {
	return slices.BinarySearchFunc(nodes, name, func(n model.Node, name string) int { return strings.Compare(n.Name, name) })
}

// mergeNodes returns nodes, which are sorted by name, with the changes.
func (s *objects) mergeNodes(old []model.Node) []model.Node {
	n := len(old)
	for name, now := range s.nodes {
		_, had := find(old, name)
		switch {
		case now != nil && !had:
			n++
		case now == nil && had:
			n--
		}
	}
	if n == 0 {
		return nil
	}
	out := make([]model.Node, 0, n)
	for _, name := range slices.Sorted(maps.Keys(s.nodes)) {
		i, found := find(old, name)
		out = append(out, old[:i]...)
		if n := s.nodes[name]; n != nil {
			out = append(out, *n)
		}
		if found {
			i++
		}
		old = old[i:]
	}
	return append(out, old...)
}
