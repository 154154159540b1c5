// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"maps"
	"slices"

	"github.com/weft-net/weft/internal/model"
)

// setNamespace gives the namespace whose labels are others now; nil: they are the same.
func (c *cluster) setNamespace(n model.Namespace) *space {
	s := c.space(n.Name)
	in := map[string]string{nameLabel: n.Name} // the API server sets it; other stores need not
	maps.Copy(in, n.Labels)
	ls := intern(in)
	if s.known && slices.Equal(s.labels, ls) {
		return nil
	}
	s.known, s.labels = true, ls
	return s
}

// delNamespace gives the namespace of which nothing is known but the name now; nil: that is how it was.
func (c *cluster) delNamespace(name string) *space {
	s := c.spaces[name]
	if s == nil || !s.known {
		return nil
	}
	s.known, s.labels = false, intern(map[string]string{nameLabel: name})
	c.dropSpace(s)
	return s
}

// space is the namespace of the name, made when it is new.
func (c *cluster) space(name string) *space {
	s := c.spaces[name]
	if s == nil {
		s = &space{name: name, labels: intern(map[string]string{nameLabel: name})}
		c.spaces[name] = s
	}
	return s
}

// dropSpace forgets a namespace that nothing is known of.
func (c *cluster) dropSpace(s *space) {
	if !s.known && len(s.pods)+len(s.policies)+len(s.multis)+len(s.identities) == 0 {
		delete(c.spaces, s.name)
	}
}

// identity is that of the labels, made when it is new.
func (c *cluster) identity(s *space, in map[string]string) *identity {
	ls := intern(in)
	h := ls.hash()
	for id := s.identities[h]; id != nil; id = id.next {
		if slices.Equal(id.labels, ls) {
			return id
		}
	}
	id := &identity{space: s, labels: ls, next: s.identities[h]}
	if s.identities == nil {
		s.identities = map[uint64]*identity{}
	}
	s.identities[h] = id
	c.follower.appeared(id)
	return id
}

// leave takes the pod out of its identity, which goes with its last one.
func (c *cluster) leave(p *pod) {
	id := p.identity
	last := len(id.pods) - 1
	id.pods[p.slot] = id.pods[last]
	id.pods[p.slot].slot = p.slot
	id.pods[last] = nil
	id.pods = id.pods[:last]
	p.identity = nil
	if last > 0 {
		return
	}
	c.follower.vanished(id)
	h := id.labels.hash()
	if s := id.space; s.identities[h] == id {
		if s.identities[h] = id.next; id.next == nil {
			delete(s.identities, h)
		}
	} else {
		for o := s.identities[h]; o != nil; o = o.next {
			if o.next == id {
				o.next = id.next
				break
			}
		}
	}
}

// identities yields those of all namespaces.
func (c *cluster) identities() func(yield func(*identity) bool) {
	return func(yield func(*identity) bool) {
		for _, s := range c.spaces {
			for _, first := range s.identities {
				for id := first; id != nil; id = id.next {
					if !yield(id) {
						return
					}
				}
			}
		}
	}
}
