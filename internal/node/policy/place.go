// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"slices"
	"time"

	"github.com/weft-net/weft/internal/kernel"
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/netns"
	"github.com/weft-net/weft/internal/plan/policy"
	"github.com/weft-net/weft/internal/state"
)

// selfPause is how long what was seen of the node's own addresses counts.
const selfPause = 100 * time.Millisecond

// place is a pod's namespace that has a table, or should. The lock guards it; what is open there is opened and closed
// by whose turn it is to write in pods.
type place struct {
	open
	id     uint64 // which namespace it is
	broken error  // it is not known to be right
	// elsewhere: the namespace is another one by now, and what is open is of the old one. meddled counts how often others
	// have touched the table.
	elsewhere bool
	meddled   int
	// change is to be written, nil where nothing is. unsure: the whole table is, whatever has changed; so it is with
	// changes of the index up to the batch ahead.
	change *policy.Change
	unsure bool
	ahead  uint64
	// needless: no table is needed, and the node's tables were written since: what is judged there from now on is judged.
	needless bool
	// busy: its table is being written.
	busy bool
	// unheard: that denied packets cannot be heard was said.
	unheard bool
	// barred: a macvtap is down because its table cannot be written; unbarred: it is known not to be.
	barred, unbarred bool
	// unseen: nothing can judge its packets, and some policy selects it.
	unseen error
}

// open is what is open of a place.
type open struct {
	ns    *netns.NS // nil while it is not open
	conn  *kernel.Conn
	blind func() // ends the watch of what others do to the table; nil where there is none
	// deaf ends the hearing of denied packets, nil where there is none; heard is closed when it has ended.
	deaf  func()
	heard <-chan struct{}
}

func (o open) close() {
	if o.blind != nil {
		o.blind()
	}
	if o.deaf != nil {
		o.deaf()
	}
	if o.conn != nil {
		_ = errors.Join(o.conn.Close(), o.ns.Close())
	}
}

// take gives away what is open of a place. The lock is held.
func (p *place) take() open {
	was := p.open
	p.open, p.unheard = open{}, false
	return was
}

// placeAt is the place, made if it is not known yet. The lock is held.
func (e *Enforcer) placeAt(p policy.Place) *place {
	at := e.places[p]
	if at == nil {
		at = &place{}
		e.places[p] = at
	}
	return at
}

// placeIn is where in its pod's namespace an interface is judged; false where it is on the node.
func placeIn(l *local) (p policy.Place, ok bool) {
	switch l.Point() {
	case model.PointPod:
		return policy.Place{Pod: l.Pod}, true
	case model.PointTap:
		return policy.Place{Pod: l.Pod, Tap: l.IfName}, true
	case model.PointDevice:
		return policy.Place{Pod: l.Pod, Device: l.Device}, true
	}
	return p, false
}

// enter opens the pod's namespace. The error wraps netns.ErrGone when there is none any more. It is the turn of who
// writes in pods.
func (e *Enforcer) enter(p policy.Place) (*place, error) {
	e.mu.Lock()
	at := e.placeAt(p)
	var old open
	if at.elsewhere {
		old, at.elsewhere = at.take(), false
	}
	if at.conn != nil {
		e.mu.Unlock()
		e.hear(p, at)
		return at, nil
	}
	var path string
	var id uint64
	for _, one := range e.local {
		if in, ok := placeIn(one); ok && in == p && (path == "" || one.NetnsID == at.id) {
			path, id = one.Netns, one.NetnsID
		}
	}
	e.mu.Unlock()
	old.close()
	if path == "" {
		return at, fmt.Errorf("pod %s: %w", p.Pod, netns.ErrGone)
	}
	ns, err := netns.Open(path)
	if err != nil {
		return at, err
	}
	if is, err := ns.ID(); err != nil || is != id {
		return at, errors.Join(fmt.Errorf("namespace %s is another one: %w", path, netns.ErrGone), err, ns.Close())
	}
	conn, err := kernel.Dial(ns)
	if err != nil {
		return at, errors.Join(err, ns.Close())
	}
	e.mu.Lock()
	moved := at.elsewhere
	if !moved {
		at.ns, at.conn, at.id = ns, conn, id
	}
	e.mu.Unlock()
	if moved {
		return at, errors.Join(errMoved, conn.Close(), ns.Close())
	}
	e.look(p, at)
	e.hear(p, at)
	return at, nil
}

// errMoved is of a place whose pod has got another namespace: nothing is known of a table in that one.
var errMoved = errors.New("the pod has another namespace now")

// moved has a pod's table be written into the namespace of its newest interface: its next sandbox may come before the
// last one has gone. The lock is held.
func (e *Enforcer) moved(l *local) {
	p, ok := placeIn(l)
	at := e.places[p]
	if !ok || at == nil || at.id == l.NetnsID {
		return
	}
	at.id, at.broken, at.elsewhere = l.NetnsID, errMoved, true
}

// writePods writes what has changed in pods: the tables that go before those that come, since two may be in one
// namespace.
func (e *Enforcer) writePods(ctx context.Context) {
	e.podWrites.take()
	defer e.podWrites.end()
	ctx, cancel := context.WithTimeout(ctx, writeTime)
	defer cancel()
	e.mu.Lock()
	var changes []policy.Change
	var unsure []policy.Place
	for p, at := range e.places {
		switch {
		case at.unsure || at.broken != nil:
			unsure = append(unsure, p)
		case at.change != nil:
			changes = append(changes, *at.change)
		}
		at.unsure, at.change = false, nil
	}
	e.mu.Unlock()
	for _, c := range ordered(changes) {
		e.changePod(ctx, c)
	}
	for _, p := range unsure {
		e.settle(ctx, p)
	}
	e.clearStale(ctx)
}

// writeAhead writes the whole tables of places in pods while somebody else writes the node's, which takes long.
func (e *Enforcer) writeAhead(ctx context.Context, places []policy.Place) {
	e.podWrites.take()
	defer e.podWrites.end()
	ctx, cancel := context.WithTimeout(ctx, writeTime)
	defer cancel()
	for _, p := range places {
		e.mu.Lock()
		at := e.placeAt(p)
		at.unsure, at.change = false, nil
		at.ahead = e.batch + 1 // what is being written now, and what is next
		e.mu.Unlock()
		e.settle(ctx, p)
	}
}

// changePod changes the table in a pod's namespace. A pod that is gone needs none. It is the turn of who writes in
// pods.
func (e *Enforcer) changePod(ctx context.Context, c policy.Change) {
	if c.Gone && e.hasOtherName(c.Place) {
		return
	}
	if c.Place.Device != "" {
		e.cutDevice(c.Place, !c.Gone)
		return
	}
	at, err := e.enter(c.Place)
	if err == nil {
		err = e.busily(at, func() error { return e.write(ctx, at.conn, c) })
	}
	switch {
	case errors.Is(err, netns.ErrGone) && !e.isComing(c.Place):
		e.forget(c.Place)
	case err != nil:
		e.settle(ctx, c.Place)
	case c.Gone:
		e.barTap(ctx, c.Place, at, false)
		e.forget(c.Place)
	}
}

// isComing is coming, and hasOtherName renamed, for who does not have the lock.
func (e *Enforcer) isComing(p policy.Place) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.coming(p)
}

func (e *Enforcer) hasOtherName(p policy.Place) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.renamed(p)
}

// coming tells whether an interface of the pod is being attached: then its namespace is there, and must not be missed.
// The lock is held.
func (e *Enforcer) coming(p policy.Place) bool {
	for _, l := range e.local {
		if in, ok := placeIn(l); ok && in == p && !l.done {
			return true
		}
	}
	return false
}

// renamed tells whether the pod has another name in the index by now: the namespace has that one's table. The lock is
// held.
func (e *Enforcer) renamed(p policy.Place) bool {
	for _, l := range e.local {
		in, ok := placeIn(l)
		if was := l.Pod; ok && in.Tap == p.Tap && in.Device == p.Device && was.Namespace == p.Pod.Namespace &&
			was.Name == p.Pod.Name && was.UID != p.Pod.UID {
			return true
		}
	}
	return false
}

// tables are those of some places as they should be. The lock is held.
func (e *Enforcer) tables(some ...policy.Place) map[policy.Place]state.Table {
	out := map[policy.Place]state.Table{}
	for _, t := range e.index.Tables(some...) {
		out[t.Place] = t.Table
	}
	return out
}

// settle makes the table of a pod's place what it should be, whatever it is. It is the turn of who writes in pods.
func (e *Enforcer) settle(ctx context.Context, p policy.Place) {
	e.mu.Lock()
	at := e.placeAt(p)
	tables, renamed, meddled := e.tables(p), e.renamed(p), at.meddled
	_, needed := tables[p]
	needless := at.needless
	at.needless = needless && !needed
	early := !needed && !needless && p.Device == ""
	at.unsure = at.unsure || early
	e.mu.Unlock()
	switch {
	case p.Device != "":
		e.cutDevice(p, needed)
		return
	case early: // what judges its packets instead may not stand yet
		token(e.due)
		return
	case !needed && renamed:
		e.forget(p)
		return
	}
	at, err := e.enter(p)
	if err == nil {
		err = e.busily(at, func() error { return e.put(ctx, at.conn, tables, p) })
	}
	switch {
	case errors.Is(err, netns.ErrGone) && !e.isComing(p), err == nil && !needed:
		e.barTap(ctx, p, at, false)
		e.forget(p)
		return
	case err != nil:
		e.log.Error("policies of a pod cannot be written; it is tried again", "pod", p.Pod.String(), "err", err)
	}
	e.mu.Lock()
	if err != nil {
		e.stats.Failures++
	}
	if !at.elsewhere && (err != nil || at.meddled == meddled) {
		at.broken = err
	}
	e.mu.Unlock()
	e.barTap(ctx, p, at, err != nil && needed)
}

// busily writes a place's table, whose counters nobody waits for meanwhile.
func (e *Enforcer) busily(at *place, write func() error) error {
	is := func(busy bool) {
		e.mu.Lock()
		defer e.mu.Unlock()
		at.busy = busy
	}
	is(true)
	defer is(false)
	return write()
}

// forget gives up a place. It is the turn of who writes in pods.
func (e *Enforcer) forget(p policy.Place) {
	e.mu.Lock()
	var was open
	if at := e.places[p]; at != nil {
		was = at.take()
		delete(e.places, p)
	}
	e.mu.Unlock()
	was.close()
}

// podPlaces are those of all interfaces that are judged in their pods' namespaces. The lock is held.
func (e *Enforcer) podPlaces() []policy.Place {
	seen := map[policy.Place]bool{}
	var out []policy.Place
	for _, l := range e.local {
		if p, ok := placeIn(l); ok && !seen[p] {
			seen[p] = true
			out = append(out, p)
		}
	}
	return out
}

// leave gives up the namespace of a pod whose last interface has gone.
func (e *Enforcer) leave(l *local) {
	p, ok := placeIn(l)
	if !ok || e.inUse(p) {
		return
	}
	e.podWrites.take()
	defer e.podWrites.end()
	if !e.inUse(p) {
		e.forget(p)
	}
}

// inUse tells whether some interface is judged in a place.
func (e *Enforcer) inUse(p policy.Place) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Contains(e.podPlaces(), p)
}

func (e *Enforcer) closePlaces() {
	e.podWrites.take()
	defer e.podWrites.end()
	e.mu.Lock()
	all := slices.Collect(maps.Keys(e.places))
	e.mu.Unlock()
	for _, p := range all {
		e.forget(p)
	}
}

// self tells the index the node's own addresses, from which its pods may always be reached: where packets are judged in
// the pod, they look like anybody's.
func (e *Enforcer) self() {
	e.looking.take()
	defer e.looking.end()
	now := e.cfg.Now()
	e.mu.Lock()
	due := len(e.known) > 0 && (!e.right || now.Sub(e.looked) >= selfPause)
	if due {
		e.looked = now
	}
	e.mu.Unlock()
	if !due {
		return
	}
	all, err := net.InterfaceAddrs()
	if err != nil {
		e.log.Warn("the node's own addresses are not known", "err", err)
		return
	}
	var addrs []netip.Addr
	for _, a := range all {
		if p, err := netip.ParsePrefix(a.String()); err == nil && !p.Addr().IsLoopback() {
			addrs = append(addrs, p.Addr())
		}
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.index.SetSelf(addrs)
}
