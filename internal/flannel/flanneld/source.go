// SPDX-License-Identifier: Apache-2.0

package flanneld

import (
	"context"
	"encoding/json"
	"net/netip"
	"slices"

	"github.com/weft-net/weft/internal/cluster/facts"
	"github.com/weft-net/weft/internal/cluster/store"
	"github.com/weft-net/weft/internal/flannel"
	"github.com/weft-net/weft/internal/model"
)

// source is a manager's nodes for the mesh: those of flannel's network, with the families that are on, and the node
// itself with the chosen interface. The node itself is never removed.
type source struct {
	facts.Source
	conf     flannel.NetConf
	self     model.Node
	takeNode func(model.Node) bool // nil takes all
	// moved receives the interface when its addresses have changed.
	moved chan Underlay
	last  model.Node // the node itself, in the manager's last event
}

// Watch sends the nodes.
func (s *source) Watch(ctx context.Context) (<-chan store.Event, error) {
	events, err := s.Source.Watch(ctx)
	if err != nil {
		return nil, err
	}
	out := make(chan store.Event)
	go func() {
		defer close(out)
		known := map[store.Key]bool{}
		send := func(e store.Event) {
			select {
			case out <- e:
			case <-ctx.Done():
			}
		}
		if o, err := object(s.self); err == nil {
			send(store.Event{Type: store.Added, Object: o})
		}
		for {
			select {
			case e, ok := <-events:
				if !ok {
					return
				}
				if e, ok := s.change(known, e); ok {
					send(e)
				}
			case u := <-s.moved:
				moved := u.self(s.self.Name, s.self.PodCIDRs, nil)
				s.self.Addrs, s.self.Public = moved.Addrs, moved.Public
				if o, err := object(s.meshNode(s.last)); err == nil {
					send(store.Event{Type: store.Modified, Object: o})
				}
			}
		}
	}()
	return out, nil
}

// change returns an event for the mesh; false if it does not concern the mesh.
func (s *source) change(known map[store.Key]bool, e store.Event) (store.Event, bool) {
	if e.Type == store.Synced || e.Type == store.Faulty {
		return e, true
	}
	key, own := e.Object.Key, e.Object.Key.Name == s.self.Name
	if e.Type == store.Deleted {
		was := known[key]
		delete(known, key)
		return e, was && !own
	}
	n, err := e.Object.Node()
	if err != nil {
		return store.Event{Type: store.Faulty, Object: e.Object, Err: err}, true
	}
	if s.takeNode != nil && !s.takeNode(n) {
		was := known[key]
		delete(known, key)
		return store.Event{Type: store.Deleted, Object: e.Object}, was
	}
	o, err := object(s.meshNode(n))
	if err != nil {
		return store.Event{Type: store.Faulty, Object: e.Object, Err: err}, true
	}
	kind := store.Modified
	if !known[key] {
		kind = store.Added
	}
	known[key] = true
	return store.Event{Type: kind, Object: o}, true
}

// meshNode returns a node for the mesh.
func (s *source) meshNode(n model.Node) model.Node {
	off := func(a netip.Addr) bool { return !s.conf.Family(familyOf(a)) }
	n.PodCIDRs = slices.DeleteFunc(slices.Clone(n.PodCIDRs), func(p netip.Prefix) bool { return off(p.Addr()) })
	n.Addrs = slices.DeleteFunc(slices.Clone(n.Addrs), off)
	if n.Published != nil {
		p := *n.Published
		p.Addrs = slices.DeleteFunc(slices.Clone(p.Addrs), off)
		n.Published = &p
	}
	if n.Name != s.self.Name {
		return n
	}
	s.last = n
	n.Addrs = s.self.Addrs
	for _, a := range s.self.Public { // an administrator's address takes precedence
		if !slices.ContainsFunc(n.Public, func(p netip.Addr) bool { return p.Is4() == a.Is4() }) {
			n.Public = append(n.Public, a)
		}
	}
	n.PodCIDRs = slices.DeleteFunc(n.PodCIDRs, func(p netip.Prefix) bool { return !s.inside(p) })
	if len(n.PodCIDRs) == 0 { // keep removed ones: pods have addresses of them
		n.PodCIDRs = s.self.PodCIDRs
	}
	return n
}

func (s *source) inside(p netip.Prefix) bool {
	return slices.ContainsFunc(s.conf.Networks(), func(n netip.Prefix) bool {
		return n.Bits() <= p.Bits() && n.Contains(p.Addr())
	})
}

// object is a node as an object of a store.
func object(n model.Node) (store.Object, error) {
	type address struct {
		Type    string `json:"type"`
		Address string `json:"address"`
	}
	keys, annotations := flannel.DefaultKeys(), map[string]string{}
	if n.Published != nil {
		annotations = keys.Write(*n.Published, nil)
	}
	for _, a := range n.Public {
		if a.Is4() {
			annotations[keys.NodeIP] = a.String()
		} else {
			annotations[keys.NodeIPv6] = a.String()
		}
	}
	var addrs []address
	for _, a := range n.Addrs {
		addrs = append(addrs, address{"InternalIP", a.String()})
	}
	var cidrs []string
	for _, p := range n.PodCIDRs {
		cidrs = append(cidrs, p.String())
	}
	raw, err := json.Marshal(map[string]any{
		"apiVersion": "v1", "kind": "Node", "metadata": map[string]any{"name": n.Name, "annotations": annotations},
		"spec": map[string]any{"podCIDRs": cidrs}, "status": map[string]any{"addresses": addrs},
	})
	if err != nil {
		return store.Object{}, err
	}
	return store.NewObject(raw)
}
