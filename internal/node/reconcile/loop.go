// SPDX-License-Identifier: Apache-2.0

package reconcile

import (
	"context"
	"fmt"
	"maps"
	"runtime/debug"
	"slices"
	"time"

	"github.com/weft-net/weft/internal/kernel/watch"
	"github.com/weft-net/weft/internal/model"
)

// manyPeers is the number of peers above which a whole pass returns its memory to the kernel: it reads and compares
// everything, which needs more than what is kept, for a second in three minutes.
const manyPeers = 2000

// loop decides when the next pass is due.
type loop struct {
	*Reconciler
	changed <-chan struct{}
	signs   <-chan struct{}
	due     <-chan time.Time // after a notification
	tables  <-chan struct{}  // notifications of deleted nft objects; nil while the plan has no tables
	broken  <-chan struct{}  // the state of user space backends has changed
	retry   <-chan time.Time // after a failure
	full    <-chan time.Time
	ask     <-chan time.Time // for reading the exceptions again
	late    <-chan time.Time // when the status file may be written again
	wait    time.Duration
	last    time.Time
	seen    *model.Cluster // by the last pass; nil when it failed
	whole   bool           // the next pass compares everything
	deaf    error          // why there are no more notifications
}

// next waits for a reason to make a pass; it returns false when ctx, or the kernel's notifications, have ended.
func (l *loop) next(ctx context.Context) bool {
	for {
		l.whole = true
		select {
		case <-ctx.Done():
			return false
		case <-l.changed:
			if l.sameToMesh(l.cfg.Facts.Cluster()) {
				continue // pods change much more often than nodes
			}
			l.whole = false
			return true // due timers stay due
		case <-l.broken:
		case <-l.cfg.OwnChanged:
			l.whole = false
			return true
		case <-l.ask:
			if l.sameExceptions() {
				continue
			}
			l.whole = false
			return true
		case <-l.checksums.next:
			l.checksums.next = nil
			l.probe(ctx)
			continue
		case found := <-l.checksums.verdicts:
			if !l.record(found) {
				continue
			}
			l.whole = false
			return true
		case <-l.due:
		case <-l.retry:
		case <-l.full:
		case <-l.late:
			l.late = nil
			l.write()
			continue
		case _, ok := <-l.tables:
			if !ok {
				return l.ended(ctx, "nftables")
			}
			l.soon()
			continue
		case _, ok := <-l.signs:
			if !ok {
				return l.ended(ctx, "links, addresses and routes")
			}
			l.soon()
			continue
		}
		l.due = nil
		return true
	}
}

// ended ends the loop when there are no more notifications, which is an error unless ctx has ended: what others delete would
// not be repaired before the next whole pass.
func (l *loop) ended(ctx context.Context, what string) bool {
	if ctx.Err() == nil {
		l.deaf = fmt.Errorf("the kernel's notifications of %s have ended", what)
	}
	return false
}

// soon schedules a pass after settle.
func (l *loop) soon() {
	if l.due == nil {
		l.due = l.cfg.After(max(settle, pace-l.cfg.Now().Sub(l.last)))
	}
}

// listen subscribes to nft notifications once the plan has tables.
func (l *loop) listen(ctx context.Context) (err error) {
	if l.tables == nil && ctx.Err() == nil && len(l.Status().Topology.Node.Host.Tables) > 0 {
		l.tables, err = watch.TablesGone(ctx, l.cfg.NS, l.cfg.Quiet...)
	}
	return err
}

// sameExceptions reads the exceptions again and reports whether they are unchanged.
func (l *loop) sameExceptions() bool {
	keep, again := l.cfg.Exceptions()
	l.ask = l.cfg.After(again)
	return slices.Equal(keep, l.except)
}

// sameToMesh reports whether none of the mesh planner's inputs has changed since the last pass.
func (l *loop) sameToMesh(now *model.Cluster) bool {
	switch {
	case l.seen == nil || !shared(l.seen.Nodes, now.Nodes) && !slices.EqualFunc(l.seen.Nodes, now.Nodes, sameNode):
		return false
	case !l.cfg.Mesh.Pools:
		return true
	}
	return slices.EqualFunc(l.seen.Blocks, now.Blocks, sameBlock) && slices.EqualFunc(l.seen.Pools, now.Pools, samePool)
}

// shared reports whether two snapshots have the same nodes, because none has changed.
func shared(a, b []model.Node) bool { return len(a) == len(b) && len(a) > 0 && &a[0] == &b[0] }

func sameBlock(a, b model.AddressBlock) bool {
	return a.CIDR == b.CIDR && a.Pool == b.Pool && a.Node == b.Node && maps.Equal(a.Lent, b.Lent)
}

func samePool(a, b model.AddressPool) bool {
	return a.Name == b.Name && a.AssignmentMode == b.AssignmentMode && a.Encapsulation == b.Encapsulation &&
		a.NATOutgoing == b.NATOutgoing && slices.Equal(a.Regions, b.Regions)
}

func sameNode(a, b model.Node) bool {
	return a.Name == b.Name && slices.Equal(a.Addrs, b.Addrs) && slices.Equal(a.Public, b.Public) &&
		slices.Equal(a.PodCIDRs, b.PodCIDRs) && a.Published.Equal(b.Published) &&
		a.VTEP == b.VTEP && slices.Equal(a.Unmanaged, b.Unmanaged)
}

// pass plans and applies.
func (l *loop) pass(ctx context.Context) {
	cluster := l.cfg.Facts.Cluster()
	if cluster == nil {
		return
	}
	l.count(ctx, cluster)
	status, err := l.reconcile(ctx, cluster, l.whole)
	l.last = l.cfg.Now()
	if l.again > 0 {
		l.ask = l.cfg.After(l.again)
	}
	if l.whole || l.full == nil {
		l.full = l.cfg.After(l.cfg.Full)
	}
	if ctx.Err() != nil {
		return
	}
	l.publish(status, err)
	if l.cfg.Passed != nil {
		l.cfg.Passed(l.Status())
	}
	if l.whole && len(status.Topology.Peers) > manyPeers {
		debug.FreeOSMemory()
	}
	if wait, unsaved := l.unsaved(); unsaved && l.late == nil {
		l.late = l.cfg.After(wait)
	}
	l.retry, l.seen = nil, nil
	if err == nil {
		l.wait, l.seen = firstRetry, cluster
		return
	}
	l.retry = l.cfg.After(l.wait)
	l.wait = min(2*l.wait, longestRetry)
}
