// SPDX-License-Identifier: Apache-2.0

package attach

import (
	"context"
	"errors"
	"log/slog"

	"github.com/weft-net/weft/internal/failpoint"
	"github.com/weft-net/weft/internal/kernel"
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/plan/plugin"
	"github.com/weft-net/weft/internal/state"
)

// deleter undoes attachments for a DEL.
type deleter struct {
	agent      bool // a DEL is fast
	boot       string
	namespaces *namespaces
	locks      *lockSet
	records    *recordStore
	catalog    *catalog
	machines   *machinesIn
	unmanaged  *unmanaged
	dscp       *dscpMarks
	undoer     *undoer
	deriver    *deriver
	cooling    *cooling
	queue      *releaseQueue
	log        *slog.Logger
	fail       failpoint.Hook
}

// delAll undoes one or several attachments of one container; the errors are those of the jobs. What AddAll plans
// together is taken from the kernel together: each link that goes by itself makes the kernel wait, and eight that go at
// once make it wait as long as one. What cannot be undone together is undone by itself, whatever happens with the
// others.
func (d *deleter) delAll(ctx context.Context, jobs []Job) []error {
	errs := make([]error, len(jobs))
	if len(jobs) == 0 {
		return errs
	}
	var done map[model.AttachmentKey]bool
	if len(jobs) > 1 {
		err := d.inTurn(ctx, jobs[0], func() error { done = d.delTogether(ctx, jobs); return nil })
		if err != nil {
			return fill(errs, err)
		}
	}
	// A turn for each: a foreign plugin may take long, and who buries what is gone waits for the turn no longer than a
	// limit.
	for i, job := range jobs {
		if !done[job.Request.Key()] {
			errs[i] = d.inTurn(ctx, job, func() error { return d.del(ctx, job) })
		}
	}
	return errs
}

// inTurn does something about a job when it is its container's turn.
func (d *deleter) inTurn(ctx context.Context, job Job, do func() error) error {
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

// del undoes one attachment, whatever is recorded of it. The container's turn is the caller's.
func (d *deleter) del(ctx context.Context, job Job) error {
	if _, err := d.namespaces.id(job); err != nil {
		return err
	}
	var unfinished *Record
	var tables []state.Table // that nobody else will look after
	err := locked(ctx, d.locks.of(job.Request.Network).Together, func() error {
		rec, found, err := d.records.get(job.Request.Key())
		switch {
		case err != nil:
			return err
		case !found:
			tables = plugin.SharedTables()
			return d.deriver.deriveSaved(ctx, job)
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
		return d.undoer.abandon(ctx, *unfinished, spaces)
	}
	d.tidyTables(ctx, tables)
	return err
}

// delTogether undoes those of several jobs that can be undone together, and tells which it has done. What it has not is
// undone again by itself, which says what is wrong.
func (d *deleter) delTogether(ctx context.Context, jobs []Job) map[model.AttachmentKey]bool {
	if !d.agent || len(jobs) < 2 || d.machines.has(jobs[0].Request.ContainerID) {
		return nil
	}
	done := map[model.AttachmentKey]bool{}
	err := locked(ctx, d.locks.main.Together, func() error {
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
		d.log.Info("networks are detached one by one", "container", jobs[0].Request.ContainerID, "err", err)
	}
	return done
}

// releasable are the records of several jobs that can be undone together: of one namespace, finished, all built in,
// without anything that was there before and comes back, and with at most one that has something of the node in common
// with others.
func (d *deleter) releasable(jobs []Job) []Record {
	var records []Record
	own := 0
	for _, job := range jobs {
		rec, found, err := d.records.get(job.Request.Key())
		if err != nil || !found || rec.Stage == Pending || rec.Boot != d.boot || !plainActs(rec) ||
			len(records) > 0 && rec.NetnsID != records[0].NetnsID {
			continue
		}
		if _, err := d.namespaces.id(job); err != nil {
			continue
		}
		apart, plain := d.catalog.plain(Job{Network: rec.Network})
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

// plainActs reports whether a record's acts are addresses first and then what they were for, which nothing was changed
// for.
func plainActs(rec Record) bool {
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

// release undoes finished attachments: as a DEL, that is fast where a reaper runs, and what several of them applied
// goes in one pass over the kernel. The errors are those of the records.
func (d *deleter) release(ctx context.Context, spaces kernel.Spaces, records ...Record) []error {
	errs := make([]error, len(records))
	if err := d.releasing(records); err != nil {
		return fill(errs, err)
	}
	if !d.agent {
		for i, rec := range records {
			if errs[i] = d.undoer.undo(ctx, rec, spaces, spaces.Remove); errs[i] == nil {
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
		taken = d.takeAll(ctx, spaces, records)
	}
	for i, rec := range records {
		switch {
		case taken != nil:
			errs[i] = taken
		case len(records) > 1:
			errs[i] = d.giveBack(ctx, rec, spaces)
		default:
			errs[i] = d.undoer.undo(ctx, rec, spaces, spaces.Release)
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

// releasing writes that the undo of finished attachments begins.
func (d *deleter) releasing(records []Record) error {
	if err := d.fail.At("before releasing"); err != nil {
		return err
	}
	var begun []Record
	for i := range records {
		if records[i].Stage == Done {
			records[i].Stage = Releasing
			begun = append(begun, records[i])
		}
	}
	if len(begun) > 0 {
		if err := d.records.put(begun...); err != nil {
			// A memory that cannot be written is no reason to keep the addresses and the links.
			d.log.Warn("records are not marked as releasing", "first", begun[0].Key().String(), "err", err)
		}
	}
	return d.fail.At("after releasing")
}

// takeAll takes from the kernel what the records applied, in one pass.
func (d *deleter) takeAll(ctx context.Context, spaces kernel.Spaces, records []Record) error {
	if err := d.fail.At("before undo " + string(ActApply)); err != nil {
		return err
	}
	all := state.Fragment{Owner: plugin.Owner(records[0].Key())}
	for _, rec := range records {
		all.Merge(rec.Fragment())
	}
	if err := spaces.Release(ctx, all); err != nil {
		return err
	}
	return d.fail.At("after undo " + string(ActApply))
}

// giveBack removes the files of a record whose fragments are taken, and gives its addresses back.
func (d *deleter) giveBack(ctx context.Context, rec Record, spaces kernel.Spaces) error {
	for _, act := range rec.Acts {
		if err := removeFiles(act.Files); err != nil {
			return err
		}
	}
	rec.Acts = addressActs(rec.Acts)
	return d.undoer.undo(ctx, rec, spaces, spaces.Release)
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

// tidyTables takes tables without elements, when nobody else is busy: who is will do it. Errors do not matter to the
// DEL that is done.
func (d *deleter) tidyTables(ctx context.Context, tables []state.Table) {
	if len(tables) == 0 {
		return
	}
	locks, ok := d.locks.main.(interface {
		TryAlone() (release func(), ok bool)
	})
	if !ok {
		return
	}
	release, ok := locks.TryAlone()
	if !ok {
		return
	}
	defer release()
	if err := d.undoer.removeShared(ctx, state.Fragment{Host: state.Space{Tables: tables}}); err != nil {
		d.log.Warn("empty table stays", "err", err)
	}
}
