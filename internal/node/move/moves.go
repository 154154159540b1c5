// SPDX-License-Identifier: Apache-2.0

package move

import (
	"net/netip"
	"slices"

	"github.com/weft-net/weft/internal/cluster/store"
	"github.com/weft-net/weft/internal/model"
)

// noted is a move as the store told of it. It may hold thousands of connections, so it is read once.
type noted struct {
	object store.Object
	move   model.AddressMove
}

// take notes an event, and tells whom it is about. It gives the moves of this node that nobody here made.
func (m *Mover) take(e store.Event) (stale []store.Object) {
	m.mu.Lock()
	defer m.mu.Unlock()
	about := func(*follower) bool { return true }
	switch e.Type {
	case store.Synced:
		m.synced = true
	case store.Added, store.Modified, store.Deleted:
		key := e.Object.Key
		was := m.moves[key]
		delete(m.moves, key)
		now := noted{object: e.Object}
		var err error
		if now.move, err = e.Object.AddressMove(); err == nil && e.Type != store.Deleted {
			m.moves[key] = now
		}
		about = func(f *follower) bool {
			return f.move == key || was.allows(f) || now.allows(f) || slices.ContainsFunc(was.move.Addrs, f.own) ||
				slices.ContainsFunc(now.move.Addrs, f.own)
		}
	default:
		return nil
	}
	if !m.synced {
		return nil
	}
	for _, f := range m.followers {
		if about(f) {
			f.wake.Notify()
		}
	}
	for key, o := range m.moves {
		if o.move.Target == m.cfg.Node && o.move.TargetPod == "" && !m.awaits(key) {
			stale = append(stale, o.object)
			delete(m.moves, key)
		}
	}
	return stale
}

// awaits tells whether somebody here made a move; the caller holds the lock.
func (m *Mover) awaits(key store.Key) bool {
	for _, f := range m.followers {
		if f.move == key {
			return true
		}
	}
	return false
}

// of is the move of a key as it is known.
func (m *Mover) of(key store.Key) (store.Object, model.AddressMove, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	o, is := m.moves[key]
	return o.object, o.move, is
}

// wanted is the move of another node that wants addresses of these.
func (m *Mover) wanted(own func(netip.Addr) bool) (store.Object, model.AddressMove, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, o := range m.moves {
		if o.move.Target != m.cfg.Node && o.move.TargetPod == "" && slices.ContainsFunc(o.move.Addrs, own) {
			return o.object, o.move, true
		}
	}
	return store.Object{}, model.AddressMove{}, false
}

// isWanted tells whether another node wants the follower's addresses.
func (m *Mover) isWanted(f *follower) bool {
	_, _, is := m.wanted(f.own)
	return is
}

// allows reports whether the move lets the follower's pod take the machine's addresses over.
func (n noted) allows(f *follower) bool {
	return n.move.TargetPod != "" && n.move.TargetPod == f.pod && n.move.Target == f.m.cfg.Node &&
		n.move.Namespace == f.vm.Namespace && n.move.Machine == f.vm.Name
}

// allowed reports whether a move lets the follower's pod take the machine's addresses over.
func (m *Mover) allowed(f *follower) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, n := range m.moves {
		if n.allows(f) {
			return true
		}
	}
	return false
}
