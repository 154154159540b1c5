// SPDX-License-Identifier: Apache-2.0

package attach

import (
	"context"
	"errors"
	"log/slog"
	"net/netip"
	"slices"

	"github.com/weft-net/weft/internal/failpoint"
	"github.com/weft-net/weft/internal/kernel"
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/plan/plugin"
	"github.com/weft-net/weft/internal/state"
)

// deleter handles DEL.
type deleter struct {
	agent      bool // DEL returns before the links are gone
	boot       string
	namespaces *namespaces
	locks      *lockSet
	records    *notifyingStore
	catalog    *catalog
	vms        *podVMs
	unmanaged  *unmanaged
	dscp       *dscpMarks
	rollback   *rollback
	deriver    *deriver
	cooling    *cooling
	queue      *releaseQueue
	reaper     *kernel.Reaper
	log        *slog.Logger
	fail       failpoint.Hook
}

// delAll undoes one or several attachments of one container; it returns one error per job. Attachments that AddAll
// plans as a group are removed from the kernel as a group, because deleting eight links at once takes as long as
// deleting one. The others are undone one by one, independently of each other.
func (d *deleter) delAll(ctx context.Context, jobs []Job) []error {
	errs := make([]error, len(jobs))
	if len(jobs) == 0 {
		return errs
	}
	var done map[model.AttachmentKey]bool
	if len(jobs) > 1 {
		err := d.withContainerLock(ctx, jobs[0], func() error { done = d.delBatch(ctx, jobs); return nil })
		if err != nil {
			return fill(errs, err)
		}
	}
	// Each takes the container's lock by itself: a foreign plugin may take long, and garbage collection waits for the lock
	// for a limited time.
	for i, job := range jobs {
		if !done[job.Request.Key()] {
			errs[i] = d.withContainerLock(ctx, job, func() error { return d.del(ctx, job) })
		}
	}
	return errs
}

// withContainerLock calls do while it holds the lock of the job's container.
func (d *deleter) withContainerLock(ctx context.Context, job Job, do func() error) error {
	return locked(ctx, func(ctx context.Context) (func(), error) {
		return d.locks.of(job.Request.Network).Container(ctx, job.Request.ContainerID)
	}, do)
}

func fill(errs []error, err error) []error {
	for i := range errs {
		errs[i] = err
	}
	return errs
}

// del undoes one attachment in any stage. The caller holds the container's lock.
func (d *deleter) del(ctx context.Context, job Job) error {
	if _, err := d.namespaces.id(job); err != nil {
		return err
	}
	var unfinished *Record
	var tables []state.Table // that no other cleanup removes
	err := locked(ctx, d.locks.of(job.Request.Network).RLock, func() error {
		rec, found, err := d.records.get(job.Request.Key())
		switch {
		case err != nil:
			return err
		case !found:
			tables = plugin.SharedTables()
			return d.deriver.undoDerivedSaved(ctx, job)
		case rec.Stage == Pending:
			unfinished = &rec
			return nil
		}
		spaces, done := d.namespaces.forDel(job, rec)
		defer done()
		err = d.release(ctx, spaces, rec)[0]
		if err == nil && !d.agent {
			tables = sharedTables(rec.Fragment())
		}
		return err
	})
	if unfinished != nil {
		spaces, done := d.namespaces.forDel(job, *unfinished)
		defer done()
		return d.rollback.abandon(ctx, *unfinished, spaces)
	}
	d.removeEmptyTables(ctx, tables)
	return err
}

// delBatch undoes the jobs that can be undone as a group, and returns which succeeded. The others are undone one by one
// afterwards, which reports their errors.
func (d *deleter) delBatch(ctx context.Context, jobs []Job) map[model.AttachmentKey]bool {
	if !d.agent || len(jobs) < 2 || d.vms.has(jobs[0].Request.ContainerID) {
		return nil
	}
	done := map[model.AttachmentKey]bool{}
	err := locked(ctx, d.locks.main.RLock, func() error {
		records := d.releasable(jobs)
		if len(records) < 2 {
			return nil
		}
		spaces, end := d.namespaces.forDel(jobs[0], records[0])
		defer end()
		errs := d.release(ctx, spaces, records...)
		for i, rec := range records {
			done[rec.Key()] = errs[i] == nil
		}
		return errors.Join(errs...)
	})
	if err != nil {
		d.log.Info("pod's networks cannot be detached as a group; detaching them one by one",
			"container", jobs[0].Request.ContainerID, "err", err)
	}
	return done
}

// releasable returns the records of the jobs that can be undone as a group: of one namespace, finished, all plugins
// built in, nothing to restore, and at most one that shares objects of the node.
func (d *deleter) releasable(jobs []Job) []Record {
	var records []Record
	own := 0
	for _, job := range jobs {
		rec, found, err := d.records.get(job.Request.Key())
		if err != nil || !found || rec.Stage == Pending || rec.Boot != d.boot || !batchableActs(rec) ||
			len(records) > 0 && rec.NetnsID != records[0].NetnsID {
			continue
		}
		if _, err := d.namespaces.id(job); err != nil {
			continue
		}
		apart, plain := d.catalog.batchable(Job{Network: rec.Network})
		if !plain || !apart && own > 0 {
			continue
		}
		if !apart {
			own++
		}
		records = append(records, rec)
	}
	return records
}

// batchableActs reports whether a record's acts are allocations followed by fragments that replaced nothing.
func batchableActs(rec Record) bool {
	applied := false
	for _, act := range rec.Acts {
		switch act.Kind {
		case ActApply:
			if applied = true; act.Fragment == nil || act.Restore != nil {
				return false
			}
		case ActIPAM:
			if applied || act.Plugin >= len(rec.Network.Plugins) {
				return false
			}
		case ActSave:
		default:
			return false
		}
	}
	return applied
}

// release undoes finished attachments for a DEL, in one pass over the kernel; in an agent the reaper deletes the links
// later. It returns one error per record.
func (d *deleter) release(ctx context.Context, spaces kernel.Spaces, records ...Record) []error {
	errs := make([]error, len(records))
	if err := d.markReleasing(records); err != nil {
		return fill(errs, err)
	}
	if !d.agent {
		for i, rec := range records {
			if errs[i] = d.rollback.undo(ctx, rec, spaces, spaces.Remove); errs[i] == nil {
				errs[i] = d.records.forget(rec.Key())
			}
		}
		return errs
	}
	for _, rec := range records {
		d.cooling.begin(rec.Request.Network, addresses(rec))
	}
	taken := error(nil)
	if len(records) > 1 {
		taken = d.removeApplied(ctx, spaces, records)
	}
	for i, rec := range records {
		switch {
		case taken != nil:
			errs[i] = taken
		case len(records) > 1:
			errs[i] = d.releaseAddresses(ctx, rec, spaces)
		default:
			errs[i] = d.rollback.undo(ctx, rec, spaces, d.releaser(spaces, rec))
		}
		if errs[i] != nil {
			d.cooling.end(rec.Request.Network, addresses(rec))
			continue
		}
		d.unmanaged.drop(rec.Key())
		d.dscp.drop(rec.Key())
		d.queue.enqueue(rec)
	}
	return errs
}

// markReleasing records that the undo of finished attachments begins.
func (d *deleter) markReleasing(records []Record) error {
	if err := d.fail.At("before releasing"); err != nil {
		return err
	}
	var begun []Record
	for i := range records {
		if records[i].Stage == Done {
			begun = append(begun, records[i])
			records[i].Stage = Releasing
		}
	}
	if len(begun) > 0 {
		if err := d.records.setStage(Releasing, begun...); err != nil {
			// A failing disk is no reason to keep the addresses and the links.
			d.log.Warn("records cannot be marked as releasing", "first", begun[0].Key().String(), "err", err)
		}
	}
	return d.fail.At("after releasing")
}

// removeApplied removes from the kernel what the records applied, in one pass.
func (d *deleter) removeApplied(ctx context.Context, spaces kernel.Spaces, records []Record) error {
	if err := d.fail.At("before undo " + string(ActApply)); err != nil {
		return err
	}
	all := state.Fragment{Owner: plugin.Owner(records[0].Key())}
	for _, rec := range records {
		all.Merge(rec.Fragment())
	}
	if err := d.releaser(spaces, records...)(ctx, all); err != nil {
		return err
	}
	return d.fail.At("after undo " + string(ActApply))
}

// releaser returns Release, which leaves conntrack entries that are translated to the records' own addresses to the
// reaper: an address is not allocated again before the reaper is done, nor is the record deleted.
func (d *deleter) releaser(spaces kernel.Spaces, records ...Record) func(context.Context, state.Fragment) error {
	var own []netip.Addr
	for _, rec := range records {
		own = append(own, addresses(rec)...)
	}
	return func(ctx context.Context, f state.Fragment) error {
		now, later := deferFlushes(f.Effects, own)
		f.Effects = now
		if err := spaces.Release(ctx, f); err != nil {
			return err
		}
		d.reaper.Flush(later)
		return nil
	}
}

// deferFlushes returns the effects without the flows to the addresses that a removal flushes, and these flows.
func deferFlushes(all []state.Effect, addrs []netip.Addr) (now []state.Effect, later []state.Flow) {
	for _, e := range all {
		if e.Kind == state.FlushConntrack && e.When == state.OnRemove && e.Space == state.Host {
			var rest []state.Flow
			for _, f := range e.Flows {
				if slices.Contains(addrs, f.ReplySrc) {
					later = append(later, f)
				} else {
					rest = append(rest, f)
				}
			}
			if e.Flows = rest; len(rest) == 0 {
				continue
			}
		}
		now = append(now, e)
	}
	return now, later
}

// releaseAddresses removes the files of a record whose fragments are removed, and releases its addresses.
func (d *deleter) releaseAddresses(ctx context.Context, rec Record, spaces kernel.Spaces) error {
	for _, act := range rec.Acts {
		if err := removeFiles(act.Files); err != nil {
			return err
		}
	}
	rec.Acts = addressActs(rec.Acts)
	return d.rollback.undo(ctx, rec, spaces, spaces.Release)
}

func addressActs(acts []Act) []Act {
	var out []Act
	for _, act := range acts {
		if act.Kind == ActIPAM {
			out = append(out, act)
		}
	}
	return out
}

// removeEmptyTables removes tables without elements, unless another call is in progress, which will do it. Errors are
// only logged: the DEL is done.
func (d *deleter) removeEmptyTables(ctx context.Context, tables []state.Table) {
	if len(tables) == 0 {
		return
	}
	locks, ok := d.locks.main.(interface {
		TryLock() (release func(), ok bool)
	})
	if !ok {
		return
	}
	release, ok := locks.TryLock()
	if !ok {
		return
	}
	defer release()
	if err := d.rollback.removeShared(ctx, state.Fragment{Host: state.Space{Tables: tables}}); err != nil {
		d.log.Warn("empty nftables table cannot be removed", "err", err)
	}
}
