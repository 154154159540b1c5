// SPDX-License-Identifier: Apache-2.0

package migration

import (
	"net/netip"
	"slices"

	"github.com/weft-net/weft/internal/cluster/store"
	"github.com/weft-net/weft/internal/model"
)

// knownMove is a move that the datastore has. It may contain thousands of connections, so it is decoded once.
type knownMove struct {
	object store.Object
	move   model.AddressMove
}

// handleEvent handles an event, and wakes its followers. It returns the moves of this node that no follower here made.
func (m *Mover) handleEvent(e store.Event) (stale []store.Object) {
	m.mu.Lock()
	defer m.mu.Unlock()
	about := func(*vmFollower) bool { return true }
	switch e.Type {
	case store.Synced:
		m.synced = true
	case store.Added, store.Modified, store.Deleted:
		key := e.Object.Key
		was := m.moves[key]
		delete(m.moves, key)
		now := knownMove{object: e.Object}
		var err error
		if now.move, err = e.Object.AddressMove(); err == nil && e.Type != store.Deleted {
			m.moves[key] = now
		}
		about = func(f *vmFollower) bool {
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
		if o.move.Target == m.cfg.Node && o.move.TargetPod == "" && !m.awaitsLocked(key) {
			stale = append(stale, o.object)
			delete(m.moves, key)
		}
	}
	return stale
}

// awaitsLocked reports whether a follower here made a move.
func (m *Mover) awaitsLocked(key store.Key) bool {
	for _, f := range m.followers {
		if f.move == key {
			return true
		}
	}
	return false
}

// of returns the known move of a key.
func (m *Mover) of(key store.Key) (store.Object, model.AddressMove, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	o, is := m.moves[key]
	return o.object, o.move, is
}

// requestedMove returns the move of another node that requests one of these addresses.
func (m *Mover) requestedMove(own func(netip.Addr) bool) (store.Object, model.AddressMove, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, o := range m.moves {
		if o.move.Target != m.cfg.Node && o.move.TargetPod == "" && slices.ContainsFunc(o.move.Addrs, own) {
			return o.object, o.move, true
		}
	}
	return store.Object{}, model.AddressMove{}, false
}

// isRequested reports whether another node requests the follower's addresses.
func (m *Mover) isRequested(f *vmFollower) bool {
	_, _, is := m.requestedMove(f.own)
	return is
}

// allows reports whether the move allows the follower's pod to take over the VM's addresses.
func (n knownMove) allows(f *vmFollower) bool {
	return n.move.TargetPod != "" && n.move.TargetPod == f.pod && n.move.Target == f.m.cfg.Node &&
		n.move.Namespace == f.vm.Namespace && n.move.VM == f.vm.Name
}

// allowed reports whether a move allows the follower's pod to take over the VM's addresses.
func (m *Mover) allowed(f *vmFollower) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, n := range m.moves {
		if n.allows(f) {
			return true
		}
	}
	return false
}
