// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"context"
	"errors"
	"fmt"
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

// place is a pod's namespace that has a table, or should.
type place struct {
	ns     *netns.NS // nil while it is not open
	conn   *kernel.Conn
	id     uint64 // which namespace it is
	broken error  // it is not known to be right
	blind  func() // ends the watch of what others do to the table; nil where there is none
	// deaf ends the hearing of denied packets, nil where there is none; heard is closed when it has ended. unheard: that it cannot be
	// was said.
	deaf    func()
	heard   <-chan struct{}
	unheard bool
	// barred: a macvtap is down because its table cannot be written; unbarred: it is known not to be.
	barred, unbarred bool
	// unseen: nothing can judge its packets, and some policy selects it.
	unseen error
}

// placeIn is where in its pod's namespace an interface is judged; false where it is on the node.
func placeIn(l *local) (p policy.Place, ok bool) {
	switch l.endpoint.Point {
	case model.PointPod:
		return policy.Place{Pod: l.endpoint.Pod}, true
	case model.PointTap:
		return policy.Place{Pod: l.endpoint.Pod, Tap: l.endpoint.IfName}, true
	case model.PointDevice:
		return policy.Place{Pod: l.endpoint.Pod, Device: l.endpoint.Device}, true
	}
	return p, false
}

// open opens the pod's namespace. The error wraps netns.ErrGone when there is none any more. The lock is held.
func (e *Enforcer) open(p policy.Place) (*place, error) {
	at := e.places[p]
	if at != nil && at.conn != nil {
		e.hear(p, at)
		return at, nil
	}
	if at == nil {
		at = &place{}
		e.places[p] = at
	}
	var l *local
	for _, one := range e.local {
		if in, ok := placeIn(one); ok && in == p && (l == nil || one.NetnsID == at.id) {
			l = one
		}
	}
	if l == nil || l.Path == "" {
		return at, fmt.Errorf("pod %s: %w", p.Pod, netns.ErrGone)
	}
	ns, err := netns.Open(l.Path)
	if err != nil {
		return at, err
	}
	if id, err := ns.ID(); err != nil || id != l.NetnsID {
		return at, errors.Join(fmt.Errorf("namespace %s is another one: %w", l.Path, netns.ErrGone), err, ns.Close())
	}
	conn, err := kernel.Dial(ns)
	if err != nil {
		return at, errors.Join(err, ns.Close())
	}
	at.ns, at.conn, at.id = ns, conn, l.NetnsID
	e.look(p, at)
	e.hear(p, at)
	return at, nil
}

// errMoved is of a place whose pod has got another namespace: nothing is known of a table in that one.
var errMoved = errors.New("the pod has another namespace now")

// moved has a pod's table be written into the namespace of its newest interface: its next sandbox may come before the last
// one has gone. The lock is held.
func (e *Enforcer) moved(l *local) {
	p, ok := placeIn(l)
	at := e.places[p]
	if !ok || at == nil || at.id == l.NetnsID {
		return
	}
	at.close()
	at.id, at.broken = l.NetnsID, errMoved
}

// close closes what is open of a place.
func (p *place) close() {
	if p.blind != nil {
		p.blind()
	}
	if p.deaf != nil {
		p.deaf()
	}
	if p.conn != nil {
		_ = errors.Join(p.conn.Close(), p.ns.Close())
	}
	p.conn, p.ns, p.blind, p.deaf, p.unheard = nil, nil, nil, nil, false
}

// changePod changes the table in a pod's namespace. A pod that is gone needs none.
func (e *Enforcer) changePod(ctx context.Context, c policy.Change) {
	if c.Gone && e.renamed(c.Place) {
		return
	}
	if c.Place.Device != "" {
		e.cutDevice(c.Place, !c.Gone)
		return
	}
	at, err := e.open(c.Place)
	if err == nil {
		err = write(ctx, at.conn, c)
	}
	switch {
	case errors.Is(err, netns.ErrGone) && !e.coming(c.Place):
		e.forget(c.Place)
	case err != nil:
		at.broken = err
		e.mend(ctx, c.Place)
	case c.Gone:
		e.barTap(ctx, c.Place, at, false)
		e.forget(c.Place)
	}
}

// coming tells whether an interface of the pod is being attached: then its namespace is there, and must not be missed.
func (e *Enforcer) coming(p policy.Place) bool {
	for _, l := range e.local {
		if in, ok := placeIn(l); ok && in == p && !l.done {
			return true
		}
	}
	return false
}

// renamed tells whether the pod has another name in the index by now: the namespace has that one's table.
func (e *Enforcer) renamed(p policy.Place) bool {
	for _, l := range e.local {
		in, ok := placeIn(l)
		if was := l.endpoint.Pod; ok && in.Tap == p.Tap && in.Device == p.Device && was.Namespace == p.Pod.Namespace && was.Name == p.Pod.Name && was.UID != p.Pod.UID {
			return true
		}
	}
	return false
}

// mend makes the table of a place what it should be, whatever it is.
func (e *Enforcer) mend(ctx context.Context, p policy.Place) {
	e.settle(ctx, p, e.tables(p))
}

// mendBroken mends the places that could not be written.
func (e *Enforcer) mendBroken(ctx context.Context) {
	for p, at := range e.places {
		if at.broken != nil {
			e.mend(ctx, p)
		}
	}
}

// tables are those of some places, or of all, as they should be.
func (e *Enforcer) tables(only ...policy.Place) map[policy.Place]state.Table {
	out := map[policy.Place]state.Table{}
	for _, t := range e.index.Tables(only...) {
		out[t.Place] = t.Table
	}
	return out
}

// settle makes the table of a pod's place that of tables.
func (e *Enforcer) settle(ctx context.Context, p policy.Place, tables map[policy.Place]state.Table) {
	_, needed := tables[p]
	if p.Device != "" {
		e.cutDevice(p, needed)
		return
	}
	at, err := e.open(p)
	if err == nil {
		err = put(ctx, at.conn, tables, p)
	}
	switch {
	case errors.Is(err, netns.ErrGone) && !e.coming(p), err == nil && !needed:
		e.barTap(ctx, p, at, false)
		e.forget(p)
		return
	case err != nil:
		e.stats.Failures++
		e.log.Error("policies of a pod cannot be written; it is tried again", "pod", p.Pod.String(), "err", err)
	}
	at.broken = err
	e.barTap(ctx, p, at, err != nil && needed)
}

func (e *Enforcer) forget(p policy.Place) {
	if at := e.places[p]; at != nil {
		at.close()
		delete(e.places, p)
	}
}

// podPlaces are those of all interfaces that are judged in their pods' namespaces.
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

// leave gives up the namespace of a pod whose last interface has gone. The lock is held.
func (e *Enforcer) leave(l *local) {
	if p, ok := placeIn(l); ok && !slices.Contains(e.podPlaces(), p) {
		e.forget(p)
	}
}

func (e *Enforcer) closePlaces() {
	e.mu.Lock()
	defer e.mu.Unlock()
	for p := range e.places {
		e.forget(p)
	}
}

// self tells the index the node's own addresses, from which its pods may always be reached: where packets are judged in the
// pod, they look like anybody's. The lock is held.
func (e *Enforcer) self() {
	now := e.cfg.Now()
	if len(e.known) == 0 || e.right && now.Sub(e.looked) < selfPause {
		return
	}
	e.looked = now
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
	e.index.SetSelf(addrs)
}
