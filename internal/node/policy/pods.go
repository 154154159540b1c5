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

// selfPause is how long the node's own addresses are cached.
const selfPause = 100 * time.Millisecond

// place is a pod's namespace that has a table, or should. The lock guards it; the open sockets are opened and closed
// by the owner of the kernel lock of the pods' tables.
type place struct {
	open
	id     uint64 // the namespace's inode number
	broken error  // why the table may be wrong
	// namespaceChanged: the pod has another namespace now, and the sockets are the old one's. externalChanges counts the
	// external changes of the table.
	namespaceChanged bool
	externalChanges  int
	// change is to be written, nil if none is. unsure: the whole table is written instead, also for changes of the index
	// up to the batch ahead.
	change *policy.Change
	unsure bool
	ahead  uint64
	// needless: no table is needed, and the node's tables, which filter its packets now, were written since.
	needless bool
	// busy: its table is being written.
	busy bool
	// denialsUnlogged: it was logged that denied packets cannot be logged.
	denialsUnlogged bool
	// quarantined: a macvtap is down because its table could not be written; tapOpen: it is known to be up.
	quarantined, tapOpen bool
	// unenforceable: policy cannot be enforced on its packets, and a policy selects it.
	unenforceable error
}

// open are the sockets and watches of a place.
type open struct {
	ns        *netns.NS // nil while it is not open
	conn      *kernel.Conn
	stopWatch func() // ends the watch of external changes; nil if there is none
	// unwatchNamespace ends the watch of the namespace's deletion.
	unwatchNamespace func()
	// stopLog ends the logging of denied packets, nil if there is none; logDone is closed when it has ended.
	stopLog func()
	logDone <-chan struct{}
}

func (o open) close() {
	if o.unwatchNamespace != nil {
		o.unwatchNamespace()
	}
	if o.stopWatch != nil {
		o.stopWatch()
	}
	if o.stopLog != nil {
		o.stopLog()
	}
	if o.conn != nil {
		_ = errors.Join(o.conn.Close(), o.ns.Close())
	}
}

// takeLocked removes and returns the sockets of a place.
func (p *place) takeLocked() open {
	was := p.open
	p.open, p.denialsUnlogged = open{}, false
	return was
}

// podTables are the tables in pods' namespaces.
type podTables struct {
	cfg     *Config
	log     *slog.Logger
	desired *desired // its lock guards the fields below except the kernel lock
	denials *denialLog
	node    *nodeTables

	// podWrites is the kernel lock of the pods' tables. Code that has written the node's tables unlocks those first.
	podWrites kernelLock
	places    map[policy.EnforcementPoint]*place
	// stale are interfaces at ports in whose pods an earlier agent may have left a table; true after a failed removal was
	// logged.
	stale map[model.AttachmentKey]bool
}

// placeAtLocked returns the place, and creates it if needed.
func (pt *podTables) placeAtLocked(p policy.EnforcementPoint) *place {
	at := pt.places[p]
	if at == nil {
		at = &place{}
		pt.places[p] = at
	}
	return at
}

// placeIn returns the place of an interface in its pod's namespace; false if it is enforced on the node.
func placeIn(l *local) (p policy.EnforcementPoint, ok bool) {
	switch l.Point() {
	case model.PointPod:
		return policy.EnforcementPoint{Pod: l.Pod}, true
	case model.PointTap:
		return policy.EnforcementPoint{Pod: l.Pod, Tap: l.IfName}, true
	case model.PointDevice:
		return policy.EnforcementPoint{Pod: l.Pod, Device: l.Device}, true
	}
	return p, false
}

// enter opens the pod's namespace. The error wraps netns.ErrGone if it does not exist any more. The caller has the
// kernel lock of the pods' tables.
func (pt *podTables) enter(p policy.EnforcementPoint) (*place, error) {
	pt.desired.mu.Lock()
	at := pt.placeAtLocked(p)
	var old open
	if at.namespaceChanged {
		old, at.namespaceChanged = at.takeLocked(), false
	}
	if at.conn != nil {
		pt.desired.mu.Unlock()
		pt.logDenied(p, at)
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
		return at, errors.Join(fmt.Errorf("namespace %s was replaced: %w", path, netns.ErrGone), err, ns.Close())
	}
	conn, err := kernel.Dial(ns)
	if err != nil {
		return at, errors.Join(err, ns.Close())
	}
	pt.desired.mu.Lock()
	moved := at.namespaceChanged
	if !moved {
		at.ns, at.conn, at.id = ns, conn, id
	}
	pt.desired.mu.Unlock()
	if moved {
		return at, errors.Join(errMoved, conn.Close(), ns.Close())
	}
	pt.closeWithNamespace(p, at, path, id)
	pt.watchTable(p, at)
	pt.logDenied(p, at)
	return at, nil
}

// errMoved is the error of a place whose pod has a new namespace, in which there may be no table.
var errMoved = errors.New("the pod has another namespace now")

// movedLocked schedules a pod's table for the namespace of its newest interface: its next sandbox may start before the
// last one has ended.
func (pt *podTables) movedLocked(l *local) {
	p, ok := placeIn(l)
	at := pt.places[p]
	if !ok || at == nil || at.id == l.NetnsID {
		return
	}
	at.id, at.broken, at.namespaceChanged = l.NetnsID, errMoved, true
}

// writePods writes changes in pods: deleted tables before new ones, since two may be in one namespace.
func (pt *podTables) writePods(ctx context.Context) {
	pt.podWrites.lock()
	defer pt.podWrites.unlock()
	ctx, cancel := context.WithTimeout(ctx, writeTime)
	defer cancel()
	pt.desired.mu.Lock()
	var changes []policy.Change
	var unsure []policy.EnforcementPoint
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
		pt.rewrite(ctx, p)
	}
	pt.clearStale(ctx)
}

// writeAhead writes the whole tables of places in pods during a running write of the node's tables, which takes long.
func (pt *podTables) writeAhead(ctx context.Context, places []policy.EnforcementPoint) {
	pt.podWrites.lock()
	defer pt.podWrites.unlock()
	ctx, cancel := context.WithTimeout(ctx, writeTime)
	defer cancel()
	for _, p := range places {
		pt.desired.mu.Lock()
		at := pt.placeAtLocked(p)
		at.unsure, at.change = false, nil
		at.ahead = pt.desired.batch + 1 // the batch that is being written, and the next
		pt.desired.mu.Unlock()
		pt.rewrite(ctx, p)
	}
}

// changePod changes the table in a pod's namespace. A deleted pod needs none. The caller has the kernel lock of the
// pods' tables.
func (pt *podTables) changePod(ctx context.Context, c policy.Change) {
	if c.Gone && pt.desired.hasOtherName(c.Point) {
		return
	}
	if c.Point.Device != "" {
		pt.disableDevice(c.Point, !c.Gone)
		return
	}
	at, err := pt.enter(c.Point)
	if err == nil {
		err = pt.writeBusy(at, func() error { return pt.node.write(ctx, at.conn, c) })
	}
	switch {
	case errors.Is(err, netns.ErrGone) && !pt.desired.isComing(c.Point):
		pt.forget(c.Point)
	case err != nil:
		pt.rewrite(ctx, c.Point)
	case c.Gone:
		pt.quarantineTap(ctx, c.Point, at, false)
		pt.forget(c.Point)
	}
}

// rewrite makes the table of a pod's place the desired one. The caller has the kernel lock of the pods' tables.
func (pt *podTables) rewrite(ctx context.Context, p policy.EnforcementPoint) {
	pt.desired.mu.Lock()
	at := pt.placeAtLocked(p)
	tables, renamed, externalChanges := pt.desired.tablesLocked(p), pt.desired.renamedLocked(p), at.externalChanges
	_, needed := tables[p]
	needless := at.needless
	at.needless = needless && !needed
	early := !needed && !needless && p.Device == ""
	at.unsure = at.unsure || early
	pt.desired.mu.Unlock()
	switch {
	case p.Device != "":
		pt.disableDevice(p, needed)
		return
	case early: // the table that replaces it may not be written yet
		pt.desired.due.Notify()
		return
	case !needed && renamed:
		pt.forget(p)
		return
	}
	at, err := pt.enter(p)
	if err == nil {
		err = pt.writeBusy(at, func() error { return pt.node.put(ctx, at.conn, tables, p) })
	}
	switch {
	case errors.Is(err, netns.ErrGone) && !pt.desired.isComing(p), err == nil && !needed:
		pt.quarantineTap(ctx, p, at, false)
		pt.forget(p)
		return
	case err != nil:
		pt.log.Error("policies of a pod could not be written; agent retries", "pod", p.Pod.String(), "err", err)
	}
	pt.desired.mu.Lock()
	if err != nil {
		pt.desired.stats.Failures++
	}
	if !at.namespaceChanged && (err != nil || at.externalChanges == externalChanges) {
		at.broken = err
	}
	pt.desired.mu.Unlock()
	pt.quarantineTap(ctx, p, at, err != nil && needed)
}

// writeBusy writes a place's table, and marks it so that reading its counters does not wait.
func (pt *podTables) writeBusy(at *place, write func() error) error {
	is := func(busy bool) {
		pt.desired.mu.Lock()
		defer pt.desired.mu.Unlock()
		at.busy = busy
	}
	is(true)
	defer is(false)
	return write()
}

// forget drops a place. The caller has the kernel lock of the pods' tables.
func (pt *podTables) forget(p policy.EnforcementPoint) {
	pt.desired.mu.Lock()
	var was open
	if at := pt.places[p]; at != nil {
		was = at.takeLocked()
		delete(pt.places, p)
	}
	pt.desired.mu.Unlock()
	was.close()
}

// leave drops the place of a pod whose last interface is gone.
func (pt *podTables) leave(l *local) {
	p, ok := placeIn(l)
	if !ok || pt.desired.inUse(p) {
		return
	}
	pt.podWrites.lock()
	defer pt.podWrites.unlock()
	if !pt.desired.inUse(p) {
		pt.forget(p)
	}
}

func (pt *podTables) closePlaces() {
	pt.podWrites.lock()
	defer pt.podWrites.unlock()
	pt.desired.mu.Lock()
	all := slices.Collect(maps.Keys(pt.places))
	pt.desired.mu.Unlock()
	for _, p := range all {
		pt.forget(p)
	}
}

// countEach returns the denied packets by place: on the node, at its bridges' ports, in pods. Unread are the places
// that are being written.
func (pt *podTables) countEach(
	ctx context.Context, conn *kernel.Conn,
) (each map[string][]kernel.Count, unread map[string]bool, err error) {
	each, unread = map[string][]kernel.Count{}, map[string]bool{}
	if each[""], err = conn.Counts(ctx, policy.TableFamily, policy.TableName); err != nil {
		return nil, nil, err
	}
	pt.desired.mu.Lock()
	ports := pt.desired.hasPortsLocked()
	pods := map[policy.EnforcementPoint]*kernel.Conn{}
	for p, at := range pt.places {
		switch {
		case at.busy:
			unread[placeName(p)] = true
		case at.conn != nil && !at.namespaceChanged:
			pods[p] = at.conn
		}
	}
	pt.desired.mu.Unlock()
	if ports {
		if each["ports"], err = conn.Counts(ctx, policy.EnforcementPoint{Ports: true}.Family(),
			policy.TableName); err != nil {
			return nil, nil, err
		}
	}
	for p, conn := range pods {
		all, err := conn.Counts(ctx, p.Family(), p.Table())
		switch {
		case err == nil:
			each[placeName(p)] = all
		case !errors.Is(err, context.DeadlineExceeded): // the pod was just deleted
		default:
			unread[placeName(p)] = true
		}
	}
	return each, unread, nil
}

// placeName returns the name of a place in a pod for counters.
func placeName(p policy.EnforcementPoint) string {
	return strings.TrimSuffix(p.Pod.String()+"/"+p.Pod.UID+"/"+p.Tap, "/")
}
