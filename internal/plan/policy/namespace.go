// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"maps"
	"slices"

	"github.com/weft-net/weft/internal/model"
)

// setNamespace returns the namespace if its labels changed, else nil.
func (x *podIndex) setNamespace(n model.Namespace) *namespace {
	s := x.namespace(n.Name)
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
func (x *podIndex) delNamespace(name string) *namespace {
	s := x.namespaces[name]
	if s == nil || !s.known {
		return nil
	}
	s.known, s.labels = false, intern(map[string]string{nameLabel: name})
	x.dropNamespace(s)
	return s
}

// namespace returns the namespace of a name, and creates it if it is new.
func (x *podIndex) namespace(name string) *namespace {
	s := x.namespaces[name]
	if s == nil {
		s = &namespace{name: name, labels: intern(map[string]string{nameLabel: name})}
		x.namespaces[name] = s
	}
	return s
}

// dropNamespace deletes a namespace without object, pods and policies.
func (x *podIndex) dropNamespace(s *namespace) {
	if !s.known && len(s.pods)+len(s.policies)+len(s.multis)+len(s.identities)+len(s.accounts) == 0 {
		delete(x.namespaces, s.name)
	}
}

// identity returns the identity of the labels, and creates it if it is new.
func (x *podIndex) identity(s *namespace, in map[string]string) *identity {
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
	x.observer.identityAdded(id)
	return id
}

// leave removes the pod from its identity, which is deleted with its last pod.
func (x *podIndex) leave(p *pod) {
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
	x.observer.identityRemoved(id)
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
func (x *podIndex) identities() func(yield func(*identity) bool) {
	return func(yield func(*identity) bool) {
		for _, s := range x.namespaces {
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
func (x *podIndex) setAccount(in, name string, is map[string]string) *namespace {
	s, ls := x.namespace(in), intern(is)
	defer x.dropNamespace(s)
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
