// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"maps"
	"slices"

	"github.com/weft-net/weft/internal/model"
)

// setNamespace returns the namespace if its labels changed, else nil.
func (c *cluster) setNamespace(n model.Namespace) *namespace {
	s := c.namespace(n.Name)
	in := map[string]string{nameLabel: n.Name} // the API server sets it; other stores need not
	maps.Copy(in, n.Labels)
	ls := intern(in)
	if s.known && slices.Equal(s.labels, ls) {
		return nil
	}
	s.known, s.labels = true, ls
	return s
}

// delNamespace returns the namespace if it was known, else nil.
func (c *cluster) delNamespace(name string) *namespace {
	s := c.namespaces[name]
	if s == nil || !s.known {
		return nil
	}
	s.known, s.labels = false, intern(map[string]string{nameLabel: name})
	c.dropNamespace(s)
	return s
}

// namespace returns the namespace of a name, and creates it if it is new.
func (c *cluster) namespace(name string) *namespace {
	s := c.namespaces[name]
	if s == nil {
		s = &namespace{name: name, labels: intern(map[string]string{nameLabel: name})}
		c.namespaces[name] = s
	}
	return s
}

// dropNamespace deletes a namespace without object, pods and policies.
func (c *cluster) dropNamespace(s *namespace) {
	if !s.known && len(s.pods)+len(s.policies)+len(s.multis)+len(s.identities)+len(s.accounts) == 0 {
		delete(c.namespaces, s.name)
	}
}

// identity returns the identity of the labels, and creates it if it is new.
func (c *cluster) identity(s *namespace, in map[string]string) *identity {
	ls := intern(in)
	h := ls.hash()
	for id := s.identities[h]; id != nil; id = id.next {
		if slices.Equal(id.labels, ls) {
			return id
		}
	}
	id := &identity{namespace: s, labels: ls, next: s.identities[h]}
	if s.identities == nil {
		s.identities = map[uint64]*identity{}
	}
	s.identities[h] = id
	c.observer.identityAdded(id)
	return id
}

// leave removes the pod from its identity, which is deleted with its last pod.
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
	c.observer.identityRemoved(id)
	h := id.labels.hash()
	if s := id.namespace; s.identities[h] == id {
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

// identities iterates over those of all namespaces.
func (c *cluster) identities() func(yield func(*identity) bool) {
	return func(yield func(*identity) bool) {
		for _, s := range c.namespaces {
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

// setAccount sets the labels of a service account, none to delete it, and returns its namespace if they changed.
func (c *cluster) setAccount(in, name string, is map[string]string) *namespace {
	s, ls := c.namespace(in), intern(is)
	defer c.dropNamespace(s)
	if slices.Equal(s.accounts[name], ls) {
		return nil
	}
	if s.accounts == nil {
		s.accounts = map[string]labels{}
	}
	if s.accounts[name] = ls; len(ls) == 0 {
		delete(s.accounts, name)
	}
	return s
}
