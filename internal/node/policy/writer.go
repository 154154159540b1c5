// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"slices"
	"time"

	"github.com/weft-net/weft/internal/kernel"
	"github.com/weft-net/weft/internal/plan/policy"
	"github.com/weft-net/weft/internal/state"
)

const (
	// quiet is how long events are batched: a rollout changes many pods at once.
	quiet = 10 * time.Millisecond
	// again is the pause before a failed write is retried, period how often everything is compared without an event.
	again  = time.Second
	period = 5 * time.Minute
	// writeTime limits one comparison of everything.
	writeTime = 30 * time.Second
)

// writer writes changes, the node's tables before those in pods.
type writer struct {
	cfg     *Config
	log     *slog.Logger
	desired *desired
	node    *nodeTables
	pods    *podTables

	// writes is the kernel lock of the node's tables.
	writes kernelLock
}

// keep writes changes and repairs external changes until ctx ends.
func (wr *writer) keep(ctx context.Context, externalChanges <-chan struct{}) error {
	late := wr.cfg.After(period)
	for {
		var retry <-chan time.Time
		if wr.wrong() {
			retry = wr.cfg.After(again)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-wr.desired.due:
			select {
			case <-ctx.Done():
				return nil
			case <-wr.cfg.After(quiet):
			}
		case _, open := <-externalChanges:
			if !open {
				externalChanges = nil
				continue
			}
			wr.resync(&wr.desired.stats.ExternalChanges)
		case <-late:
			late = wr.cfg.After(period)
			wr.resync(nil)
		case <-retry:
		case <-wr.node.bridgeCheck():
		}
		wr.node.readOwnAddrs(ctx)
		since := wr.desired.takeSince()
		err := wr.commit(ctx)
		switch {
		case since.IsZero():
		case err != nil || wr.wrong():
			wr.desired.putSinceBack(since)
		case wr.cfg.Programmed != nil:
			wr.cfg.Programmed(wr.cfg.Now().Sub(since))
		}
		if err != nil && ctx.Err() == nil {
			wr.log.Error("policies could not be written; agent retries", "err", err)
		}
	}
}

// wrong reports whether a table is known to be wrong.
func (wr *writer) wrong() bool {
	wr.desired.mu.Lock()
	defer wr.desired.mu.Unlock()
	if wr.desired.readyLocked() && (!wr.node.inSync || len(wr.pods.stale) > 0) || wr.node.bridges != nil {
		return true
	}
	for _, p := range wr.pods.places {
		if p.broken != nil || p.unsure || p.change != nil {
			return true
		}
	}
	return false
}

// resync schedules a comparison of everything, and counts the reason.
func (wr *writer) resync(why *uint64) {
	wr.desired.mu.Lock()
	defer wr.desired.mu.Unlock()
	wr.node.inSync = false
	wr.node.resyncs++
	if why != nil {
		*why++
	}
}

// commit writes changes, the node's tables first; the error is that of the node's own table. While not all inputs are
// synced, the kernel's tables are not changed.
func (wr *writer) commit(ctx context.Context) error {
	wr.writes.lock()
	known, err := wr.writeNode(ctx)
	wr.writes.unlock()
	if known {
		wr.pods.writePods(ctx)
	}
	return err
}

// writeNode writes changes of the node's tables, and schedules those in pods; false while not all inputs are synced.
// The caller has the kernel lock of the node's tables.
func (wr *writer) writeNode(ctx context.Context) (known bool, err error) {
	wr.desired.mu.Lock()
	if !wr.desired.readyLocked() {
		wr.desired.mu.Unlock()
		return false, nil
	}
	all, begun := !wr.node.inSync, wr.cfg.Now()
	changes, needless := wr.desired.changesLocked(), wr.needlessLocked()
	wr.desired.mu.Unlock()
	defer wr.node.enableBridgeNetfilter()
	defer wr.node.quarantinePorts(ctx)
	if all {
		return true, wr.rewrite(ctx)
	}
	for _, c := range changes {
		switch {
		case c.Point == policy.EnforcementPoint{}:
			err = wr.change(ctx, c)
		case c.Point.OnNode():
			err := wr.node.write(ctx, wr.cfg.Host, c)
			wr.desired.mu.Lock()
			wr.node.ported, wr.node.bridges = !c.Gone, err
			if err == nil {
				wr.node.unwritten = ""
			}
			wr.desired.mu.Unlock()
		}
	}
	wr.desired.mu.Lock()
	written := err == nil && wr.node.bridges == nil
	wr.queueLocked(changes, written)
	if written {
		wr.spareLocked(needless)
	}
	var tables map[policy.EnforcementPoint]state.Table
	if wr.node.bridges != nil {
		tables = wr.desired.tablesLocked(policy.EnforcementPoint{Ports: true})
	}
	if len(changes) > 0 {
		wr.desired.stats.Transactions++
		wr.desired.stats.Took = wr.cfg.Now().Sub(begun)
	}
	wr.desired.mu.Unlock()
	if tables != nil {
		wr.node.putPorts(ctx, tables)
	}
	return true, err
}

// needlessLocked returns the places in pods, of those to be checked, that need no table.
func (wr *writer) needlessLocked() []policy.EnforcementPoint {
	var out []policy.EnforcementPoint
	for p, at := range wr.pods.places {
		if at.unsure || at.broken != nil {
			if _, needed := wr.desired.tablesLocked(p)[p]; !needed {
				out = append(out, p)
			}
		}
	}
	return out
}

// spareLocked schedules the removal of tables that were not needed before the node's tables were written.
func (wr *writer) spareLocked(needless []policy.EnforcementPoint) {
	for _, p := range needless {
		if at := wr.pods.places[p]; at != nil {
			at.needless = true
		}
	}
}

// queueLocked schedules changes of tables in pods for writePods. If the node's tables could not be written, none is
// deleted.
func (wr *writer) queueLocked(changes []policy.Change, nodeWritten bool) {
	for _, c := range changes {
		if c.Point.OnNode() {
			continue
		}
		at := wr.pods.placeAtLocked(c.Point)
		// A change is relative to the previous one; the whole table was written ahead of it, perhaps including it.
		if at.change != nil || wr.desired.batch <= at.ahead || c.Gone && !nodeWritten {
			at.unsure = true
		}
		at.change, at.needless = &c, c.Gone && nodeWritten
	}
}

// ordered puts the node's tables before deleted tables in pods, so that an interface whose packets are filtered on the
// node from now on is always filtered; and of those in pods deleted ones before new ones: two may be in one namespace.
func ordered(in []policy.Change) []policy.Change {
	step := func(c policy.Change) int {
		switch {
		case c.Point.OnNode() && !c.Gone:
			return 0
		case c.Gone:
			return 1
		}
		return 2
	}
	return slices.SortedStableFunc(slices.Values(in), func(a, b policy.Change) int {
		return cmp.Compare(step(a), step(b))
	})
}

// change changes the node's table.
func (wr *writer) change(ctx context.Context, c policy.Change) error {
	err := wr.node.write(ctx, wr.cfg.Host, c)
	if err == nil {
		return nil
	}
	if !errors.Is(err, kernel.ErrStaleTable) {
		wr.log.Warn("change of policies was refused by the kernel; agent rewrites all tables", "err", err)
	}
	return wr.rewrite(ctx)
}

// rewrite rewrites the node's tables, and schedules those in pods. The caller has the kernel lock of the node's tables.
func (wr *writer) rewrite(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), writeTime)
	defer cancel()
	wr.desired.mu.Lock()
	_ = wr.desired.changesLocked() // they are included in the tables
	pods := wr.desired.podPlacesLocked()
	tables := wr.desired.tablesLocked(append(pods, policy.EnforcementPoint{}, policy.EnforcementPoint{Ports: true})...)
	resyncs := wr.node.resyncs
	wr.desired.stats.Rewrites++
	wr.desired.stats.Transactions++
	wr.node.inSync = false // until they are compared
	wr.desired.mu.Unlock()
	err := wr.node.put(ctx, wr.cfg.Host, tables, policy.EnforcementPoint{})
	wr.desired.mu.Lock()
	if err != nil {
		wr.desired.stats.Failures++
	}
	wr.node.inSync = err == nil && wr.node.resyncs == resyncs
	wr.desired.mu.Unlock()
	wr.node.putPorts(ctx, tables)
	wr.desired.mu.Lock()
	defer wr.desired.mu.Unlock()
	for _, p := range pods {
		_, needed := tables[p]
		at := wr.pods.placeAtLocked(p)
		at.unsure, at.needless = true, err == nil && wr.node.bridges == nil && !needed
	}
	return err
}
