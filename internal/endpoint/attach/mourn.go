// SPDX-License-Identifier: Apache-2.0

package attach

import (
	"context"
	"net/netip"
	"sync"
	"time"

	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/plan/plugin"
)

// mourners look after what a fast DEL leaves: a record until its links are dead, an address until nobody can answer for
// it, shared objects for a while after their last owner.
type mourners struct {
	mu sync.Mutex
	// owners are the recorded attachments of each network, with the serial of their records.
	owners map[string]map[model.AttachmentKey]int64
	// resting counts the dead links that still have an address, by network and address.
	resting map[string]int
	dead    []Record // released, their links perhaps not yet gone
	parked  []parked // the last of their networks, which still hold shared objects
	busy    bool     // a goroutine works on dead and parked
	drain   bool     // do not linger
	wake    chan struct{}
	idle    []chan struct{}
}

type parked struct {
	rec Record
	due time.Time
}

func (m *mourners) born(rec Record) {
	k := rec.Key()
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.owners[k.Network] == nil {
		m.owners[k.Network] = map[model.AttachmentKey]int64{}
	}
	m.owners[k.Network][k] = rec.Serial
}

// still tells whether the record is the one that is remembered, and not one of a later ADD.
func (m *mourners) still(rec Record) bool {
	k := rec.Key()
	m.mu.Lock()
	defer m.mu.Unlock()
	serial, ok := m.owners[k.Network][k]
	return ok && serial == rec.Serial
}

func (m *mourners) gone(k model.AttachmentKey) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.owners[k.Network], k)
	if len(m.owners[k.Network]) == 0 {
		delete(m.owners, k.Network)
	}
}

// last tells whether a network has no other attachment.
func (m *mourners) last(k model.AttachmentKey) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	_, mine := m.owners[k.Network][k]
	return len(m.owners[k.Network]) == 0 || len(m.owners[k.Network]) == 1 && mine
}

func (m *mourners) rest(network string, addrs []netip.Addr) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, addr := range addrs {
		m.resting[network+"/"+addr.String()]++
	}
}

func (m *mourners) rested(network string, addrs []netip.Addr) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, addr := range addrs {
		k := network + "/" + addr.String()
		if m.resting[k]--; m.resting[k] <= 0 {
			delete(m.resting, k)
		}
	}
}

func (m *mourners) rests(network string, addrs []netip.Addr) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, addr := range addrs {
		if m.resting[network+"/"+addr.String()] > 0 {
			return true
		}
	}
	return false
}

// bury leaves a released record to a goroutine that forgets it when its links are dead.
func (a *Attacher) bury(rec Record) {
	m := &a.mourn
	m.mu.Lock()
	defer m.mu.Unlock()
	m.dead = append(m.dead, rec)
	a.cfg.Reaper.Kick()
	m.rouse()
	if !m.busy {
		m.busy = true
		go a.mournAll()
	}
}

func (m *mourners) rouse() {
	select {
	case m.wake <- struct{}{}:
	default:
	}
}

// Drain waits until nothing is left to look after, without lingering. An agent calls it before it stops.
func (a *Attacher) Drain(ctx context.Context) error {
	m := &a.mourn
	m.mu.Lock()
	m.drain = true
	if !m.busy {
		m.mu.Unlock()
		return nil
	}
	idle := make(chan struct{})
	m.idle = append(m.idle, idle)
	m.rouse()
	m.mu.Unlock()
	select {
	case <-idle:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// mournAll works until nothing is left.
func (a *Attacher) mournAll() {
	m := &a.mourn
	for {
		m.mu.Lock()
		dead := m.dead
		m.dead = nil
		if len(dead)+len(m.parked) == 0 {
			m.busy = false
			for _, idle := range m.idle {
				close(idle)
			}
			m.idle = nil
			m.mu.Unlock()
			return
		}
		m.mu.Unlock()
		if len(dead) > 0 {
			a.burial(dead)
			continue
		}
		a.unpark()
	}
}

// burial waits for the reaper and forgets the records.
func (a *Attacher) burial(dead []Record) {
	ctx, cancel := patient(context.Background())
	defer cancel()
	if err := a.cfg.Reaper.Wait(ctx); err != nil {
		a.cfg.Log.Warn("dead links are not gone yet", "err", err)
	}
	for _, rec := range dead {
		a.mourn.rested(rec.Request.Network, addresses(rec))
		if _, any := a.sharedOf(rec); any && a.mourn.last(rec.Key()) {
			a.mourn.mu.Lock()
			a.mourn.parked = append(a.mourn.parked, parked{rec, a.cfg.Now().Add(a.cfg.Linger)})
			a.mourn.mu.Unlock()
			continue
		}
		if err := a.unlessNew(ctx, rec, func() error { return a.forget(rec.Key()) }); err != nil {
			a.cfg.Log.Error("released record stays", "attachment", rec.Key().String(), "err", err)
		}
	}
}

// unlessNew does something about a released record, unless another ADD has taken its place.
func (a *Attacher) unlessNew(ctx context.Context, rec Record, f func() error) error {
	release, err := a.locks(rec.Request.Network).Container(ctx, rec.Request.ContainerID)
	if err != nil {
		return err
	}
	defer release()
	if !a.mourn.still(rec) {
		return nil
	}
	return f()
}

// unpark waits for the next parked record, or for news.
func (a *Attacher) unpark() {
	m := &a.mourn
	m.mu.Lock()
	next, drain := m.parked[0], m.drain
	m.mu.Unlock()
	if wait := next.due.Sub(a.cfg.Now()); wait > 0 && !drain {
		timer := time.NewTimer(wait)
		defer timer.Stop()
		select {
		case <-m.wake:
			return
		case <-timer.C:
		}
	}
	m.mu.Lock()
	m.parked = m.parked[1:]
	m.mu.Unlock()
	ctx, cancel := patient(context.Background())
	defer cancel()
	err := a.unlessNew(ctx, next.rec, func() error {
		if !a.mourn.last(next.rec.Key()) {
			return a.forget(next.rec.Key()) // others have come, they look after what they share
		}
		return a.locked(ctx, a.cfg.Locks.Alone, func() error {
			if a.mourn.last(next.rec.Key()) {
				shared, _ := a.sharedOf(next.rec)
				shared.Host.Tables = plugin.SharedTables() // those of its neighbors, too, that went before it
				if err := a.removeShared(ctx, shared); err != nil {
					return err
				}
			}
			return a.forget(next.rec.Key())
		})
	})
	if err != nil {
		a.cfg.Log.Error("shared objects without owner stay", "attachment", next.rec.Key().String(), "err", err)
	}
}
