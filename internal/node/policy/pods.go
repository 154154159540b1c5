// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/weft-net/weft/internal/kernel"
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/netns"
	"github.com/weft-net/weft/internal/plan/policy"
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

// podTables are the tables in pods' namespaces.
type podTables struct {
	cfg     *Config
	log     *slog.Logger
	desired *desired // its lock guards what follows, but for the turn
	denials *denialLog
	node    *nodeTables

	// podWrites is the turn of who writes in pods. Who writes the node's tables before has ended that turn by then.
	podWrites turn
	places    map[policy.Place]*place
	// stale are interfaces at ports in whose pods an earlier agent may have left a table; true where that it cannot be
	// removed was logged.
	stale map[model.AttachmentKey]bool
}

// placeAt is the place, made if it is not known yet. The lock is held.
func (pt *podTables) placeAt(p policy.Place) *place {
	at := pt.places[p]
	if at == nil {
		at = &place{}
		pt.places[p] = at
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
func (pt *podTables) enter(p policy.Place) (*place, error) {
	pt.desired.mu.Lock()
	at := pt.placeAt(p)
	var old open
	if at.elsewhere {
		old, at.elsewhere = at.take(), false
	}
	if at.conn != nil {
		pt.desired.mu.Unlock()
		pt.hear(p, at)
		return at, nil
	}
	var path string
	var id uint64
	for _, one := range pt.desired.local {
		if in, ok := placeIn(one); ok && in == p && (path == "" || one.NetnsID == at.id) {
			path, id = one.Netns, one.NetnsID
		}
	}
	pt.desired.mu.Unlock()
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
	pt.desired.mu.Lock()
	moved := at.elsewhere
	if !moved {
		at.ns, at.conn, at.id = ns, conn, id
	}
	pt.desired.mu.Unlock()
	if moved {
		return at, errors.Join(errMoved, conn.Close(), ns.Close())
	}
	pt.look(p, at)
	pt.hear(p, at)
	return at, nil
}

// errMoved is of a place whose pod has got another namespace: nothing is known of a table in that one.
var errMoved = errors.New("the pod has another namespace now")

// moved has a pod's table be written into the namespace of its newest interface: its next sandbox may come before the
// last one has gone. The lock is held.
func (pt *podTables) moved(l *local) {
	p, ok := placeIn(l)
	at := pt.places[p]
	if !ok || at == nil || at.id == l.NetnsID {
		return
	}
	at.id, at.broken, at.elsewhere = l.NetnsID, errMoved, true
}

// writePods writes what has changed in pods: the tables that go before those that come, since two may be in one
// namespace.
func (pt *podTables) writePods(ctx context.Context) {
	pt.podWrites.take()
	defer pt.podWrites.end()
	ctx, cancel := context.WithTimeout(ctx, writeTime)
	defer cancel()
	pt.desired.mu.Lock()
	var changes []policy.Change
	var unsure []policy.Place
	for p, at := range pt.places {
		switch {
		case at.unsure || at.broken != nil:
			unsure = append(unsure, p)
		case at.change != nil:
			changes = append(changes, *at.change)
		}
		at.unsure, at.change = false, nil
	}
	pt.desired.mu.Unlock()
	for _, c := range ordered(changes) {
		pt.changePod(ctx, c)
	}
	for _, p := range unsure {
		pt.settle(ctx, p)
	}
	pt.clearStale(ctx)
}

// writeAhead writes the whole tables of places in pods while somebody else writes the node's, which takes long.
func (pt *podTables) writeAhead(ctx context.Context, places []policy.Place) {
	pt.podWrites.take()
	defer pt.podWrites.end()
	ctx, cancel := context.WithTimeout(ctx, writeTime)
	defer cancel()
	for _, p := range places {
		pt.desired.mu.Lock()
		at := pt.placeAt(p)
		at.unsure, at.change = false, nil
		at.ahead = pt.desired.batch + 1 // what is being written now, and what is next
		pt.desired.mu.Unlock()
		pt.settle(ctx, p)
	}
}

// changePod changes the table in a pod's namespace. A pod that is gone needs none. It is the turn of who writes in
// pods.
func (pt *podTables) changePod(ctx context.Context, c policy.Change) {
	if c.Gone && pt.desired.hasOtherName(c.Place) {
		return
	}
	if c.Place.Device != "" {
		pt.cutDevice(c.Place, !c.Gone)
		return
	}
	at, err := pt.enter(c.Place)
	if err == nil {
		err = pt.busily(at, func() error { return pt.node.write(ctx, at.conn, c) })
	}
	switch {
	case errors.Is(err, netns.ErrGone) && !pt.desired.isComing(c.Place):
		pt.forget(c.Place)
	case err != nil:
		pt.settle(ctx, c.Place)
	case c.Gone:
		pt.barTap(ctx, c.Place, at, false)
		pt.forget(c.Place)
	}
}

// settle makes the table of a pod's place what it should be, whatever it is. It is the turn of who writes in pods.
func (pt *podTables) settle(ctx context.Context, p policy.Place) {
	pt.desired.mu.Lock()
	at := pt.placeAt(p)
	tables, renamed, meddled := pt.desired.tables(p), pt.desired.renamed(p), at.meddled
	_, needed := tables[p]
	needless := at.needless
	at.needless = needless && !needed
	early := !needed && !needless && p.Device == ""
	at.unsure = at.unsure || early
	pt.desired.mu.Unlock()
	switch {
	case p.Device != "":
		pt.cutDevice(p, needed)
		return
	case early: // what judges its packets instead may not stand yet
		pt.desired.due.Notify()
		return
	case !needed && renamed:
		pt.forget(p)
		return
	}
	at, err := pt.enter(p)
	if err == nil {
		err = pt.busily(at, func() error { return pt.node.put(ctx, at.conn, tables, p) })
	}
	switch {
	case errors.Is(err, netns.ErrGone) && !pt.desired.isComing(p), err == nil && !needed:
		pt.barTap(ctx, p, at, false)
		pt.forget(p)
		return
	case err != nil:
		pt.log.Error("policies of a pod cannot be written; it is tried again", "pod", p.Pod.String(), "err", err)
	}
	pt.desired.mu.Lock()
	if err != nil {
		pt.desired.stats.Failures++
	}
	if !at.elsewhere && (err != nil || at.meddled == meddled) {
		at.broken = err
	}
	pt.desired.mu.Unlock()
	pt.barTap(ctx, p, at, err != nil && needed)
}

// busily writes a place's table, whose counters nobody waits for meanwhile.
func (pt *podTables) busily(at *place, write func() error) error {
	is := func(busy bool) {
		pt.desired.mu.Lock()
		defer pt.desired.mu.Unlock()
		at.busy = busy
	}
	is(true)
	defer is(false)
	return write()
}

// forget gives up a place. It is the turn of who writes in pods.
func (pt *podTables) forget(p policy.Place) {
	pt.desired.mu.Lock()
	var was open
	if at := pt.places[p]; at != nil {
		was = at.take()
		delete(pt.places, p)
	}
	pt.desired.mu.Unlock()
	was.close()
}

// leave gives up the namespace of a pod whose last interface has gone.
func (pt *podTables) leave(l *local) {
	p, ok := placeIn(l)
	if !ok || pt.desired.inUse(p) {
		return
	}
	pt.podWrites.take()
	defer pt.podWrites.end()
	if !pt.desired.inUse(p) {
		pt.forget(p)
	}
}

func (pt *podTables) closePlaces() {
	pt.podWrites.take()
	defer pt.podWrites.end()
	pt.desired.mu.Lock()
	all := slices.Collect(maps.Keys(pt.places))
	pt.desired.mu.Unlock()
	for _, p := range all {
		pt.forget(p)
	}
}

// countEach are the packets that policies denied, by where they are counted: on the node, at its bridges' ports, in
// pods. Unread are the places that are being written just now.
func (pt *podTables) countEach(
	ctx context.Context, conn *kernel.Conn,
) (each map[string][]kernel.Count, unread map[string]bool, err error) {
	each, unread = map[string][]kernel.Count{}, map[string]bool{}
	if each[""], err = conn.Counts(ctx, policy.TableFamily, policy.TableName); err != nil {
		return nil, nil, err
	}
	pt.desired.mu.Lock()
	ports := pt.desired.hasPorts()
	pods := map[policy.Place]*kernel.Conn{}
	for p, at := range pt.places {
		switch {
		case at.busy:
			unread[placeName(p)] = true
		case at.conn != nil && !at.elsewhere:
			pods[p] = at.conn
		}
	}
	pt.desired.mu.Unlock()
	if ports {
		if each["ports"], err = conn.Counts(ctx, policy.Place{Ports: true}.Family(), policy.TableName); err != nil {
			return nil, nil, err
		}
	}
	for p, conn := range pods {
		all, err := conn.Counts(ctx, p.Family(), p.Table())
		switch {
		case err == nil:
			each[placeName(p)] = all
		case !errors.Is(err, context.DeadlineExceeded): // the pod has just gone
		default:
			unread[placeName(p)] = true
		}
	}
	return each, unread, nil
}

// placeName names a place in a pod among counters.
func placeName(p policy.Place) string {
	return strings.TrimSuffix(p.Pod.String()+"/"+p.Pod.UID+"/"+p.Tap, "/")
}
