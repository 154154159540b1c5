// SPDX-License-Identifier: Apache-2.0

package attach

import (
	"context"
	"errors"

	"github.com/weft-net/weft/internal/kernel"
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/plan/plugin"
	"github.com/weft-net/weft/internal/state"
)

// Del undoes an attachment. It works from the record alone: neither the namespace nor the configuration of the call is
// needed. Without a record it does what the configuration lets it find. Nothing to undo is no error.
func (a *Attacher) Del(ctx context.Context, job Job) error { return a.DelAll(ctx, []Job{job})[0] }

// DelAll undoes one or several attachments of one container; the errors are those of the jobs. What AddAll plans together is
// taken from the kernel together: each link that goes by itself makes the kernel wait, and eight that go at once make it
// wait as long as one. What cannot be undone together is undone by itself, whatever happens with the others.
func (a *Attacher) DelAll(ctx context.Context, jobs []Job) []error {
	errs := make([]error, len(jobs))
	if len(jobs) == 0 {
		return errs
	}
	var done map[model.AttachmentKey]bool
	if len(jobs) > 1 {
		err := a.inTurn(ctx, jobs[0], func() error { done = a.delTogether(ctx, jobs); return nil })
		if err != nil {
			return fill(errs, err)
		}
	}
	// A turn for each: a foreign plugin may take long, and who buries what is gone waits for the turn no longer than a limit.
	for i, job := range jobs {
		if !done[job.Request.Key()] {
			errs[i] = a.inTurn(ctx, job, func() error { return a.del(ctx, job) })
		}
	}
	return errs
}

// inTurn does something about a job when it is its container's turn.
func (a *Attacher) inTurn(ctx context.Context, job Job, do func() error) error {
	return a.locked(ctx, func(ctx context.Context) (func(), error) {
		return a.locks(job.Request.Network).Container(ctx, job.Request.ContainerID)
	}, do)
}

func fill(errs []error, err error) []error {
	for i := range errs {
		errs[i] = err
	}
	return errs
}

// del undoes one attachment, whatever is recorded of it. The container's turn is the caller's.
func (a *Attacher) del(ctx context.Context, job Job) error {
	if _, err := a.netnsID(job); err != nil {
		return err
	}
	var unfinished *Record
	var tables []state.Table // that nobody else will look after
	err := a.locked(ctx, a.locks(job.Request.Network).Together, func() error {
		rec, found, err := a.cfg.Memory.Get(job.Request.Key())
		switch {
		case err != nil:
			return err
		case !found:
			tables = plugin.SharedTables()
			return a.deriveUnfolded(ctx, job)
		case rec.Stage == Pending:
			unfinished = &rec
			return nil
		}
		spaces, done := a.delSpaces(job, rec)
		defer done()
		err = a.release(ctx, spaces, rec)[0]
		if err == nil && a.cfg.Reaper == nil {
			tables = sharedTables(rec.Fragment())
		}
		return err
	})
	if unfinished != nil {
		spaces, done := a.delSpaces(job, *unfinished)
		defer done()
		return a.abandon(ctx, *unfinished, spaces)
	}
	a.tidyTables(ctx, tables)
	return err
}

// delTogether undoes those of several jobs that can be undone together, and tells which it has done. What it has not is
// undone again by itself, which says what is wrong.
func (a *Attacher) delTogether(ctx context.Context, jobs []Job) map[model.AttachmentKey]bool {
	if a.cfg.Reaper == nil || len(jobs) < 2 || a.hasMachine(jobs[0].Request.ContainerID) {
		return nil
	}
	done := map[model.AttachmentKey]bool{}
	err := a.locked(ctx, a.cfg.Locks.Together, func() error {
		records := a.releasable(jobs)
		if len(records) < 2 {
			return nil
		}
		spaces, end := a.delSpaces(jobs[0], records[0])
		defer end()
		errs := a.release(ctx, spaces, records...)
		for i, rec := range records {
			done[rec.Key()] = errs[i] == nil
		}
		return errors.Join(errs...)
	})
	if err != nil {
		a.cfg.Log.Info("networks are detached one by one", "container", jobs[0].Request.ContainerID, "err", err)
	}
	return done
}

// releasable are the records of several jobs that can be undone together: of one namespace, finished, all built in, without
// anything that was there before and comes back, and with at most one that has something of the node in common with others.
func (a *Attacher) releasable(jobs []Job) []Record {
	var records []Record
	own := 0
	for _, job := range jobs {
		rec, found, err := a.cfg.Memory.Get(job.Request.Key())
		if err != nil || !found || rec.Stage == Pending || rec.Boot != a.cfg.Boot || !plainActs(rec) ||
			len(records) > 0 && rec.NetnsID != records[0].NetnsID {
			continue
		}
		if _, err := a.netnsID(job); err != nil {
			continue
		}
		apart, plain := a.plain(Job{Network: rec.Network})
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

// plainActs reports whether a record's acts are addresses first and then what they were for, which nothing was changed for.
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

// delSpaces prefers the namespace that the caller has open.
func (a *Attacher) delSpaces(job Job, rec Record) (kernel.Spaces, func()) {
	if job.Netns != nil {
		if id, err := job.Netns.ID(); err == nil && id == rec.NetnsID {
			if s, done, err := a.spaces(job.Netns); err == nil {
				return s, done
			}
		}
	}
	return a.recordSpaces(rec)
}

// release undoes finished attachments: as a DEL, that is fast where a reaper runs, and what several of them applied goes in one
// pass over the kernel. The errors are those of the records.
func (a *Attacher) release(ctx context.Context, spaces kernel.Spaces, records ...Record) []error {
	errs := make([]error, len(records))
	if err := a.releasing(records); err != nil {
		return fill(errs, err)
	}
	if a.cfg.Reaper == nil {
		for i, rec := range records {
			if errs[i] = a.undo(ctx, rec, spaces, spaces.Remove); errs[i] == nil {
				errs[i] = a.forget(rec.Key())
			}
		}
		return errs
	}
	for _, rec := range records {
		a.mourn.rest(rec.Request.Network, addresses(rec))
	}
	taken := error(nil)
	if len(records) > 1 {
		taken = a.takeAll(ctx, spaces, records)
	}
	for i, rec := range records {
		switch {
		case taken != nil:
			errs[i] = taken
		case len(records) > 1:
			errs[i] = a.giveBack(ctx, rec, spaces)
		default:
			errs[i] = a.undo(ctx, rec, spaces, spaces.Release)
		}
		if errs[i] != nil {
			a.mourn.rested(rec.Request.Network, addresses(rec))
			continue
		}
		a.brought.drop(rec.Key())
		a.marked.drop(rec.Key())
		a.bury(rec)
	}
	return errs
}

// releasing writes that the undo of finished attachments begins.
func (a *Attacher) releasing(records []Record) error {
	if err := a.step("before releasing"); err != nil {
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
		if err := a.put(begun...); err != nil {
			// A memory that cannot be written is no reason to keep the addresses and the links.
			a.cfg.Log.Warn("records are not marked as releasing", "first", begun[0].Key().String(), "err", err)
		}
	}
	return a.step("after releasing")
}

// takeAll takes from the kernel what the records applied, in one pass.
func (a *Attacher) takeAll(ctx context.Context, spaces kernel.Spaces, records []Record) error {
	if err := a.step("before undo " + string(ActApply)); err != nil {
		return err
	}
	all := state.Fragment{Owner: plugin.Owner(records[0].Key())}
	for _, rec := range records {
		all.Merge(rec.Fragment())
	}
	if err := spaces.Release(ctx, all); err != nil {
		return err
	}
	return a.step("after undo " + string(ActApply))
}

// giveBack removes the files of a record whose fragments are taken, and gives its addresses back.
func (a *Attacher) giveBack(ctx context.Context, rec Record, spaces kernel.Spaces) error {
	for _, act := range rec.Acts {
		if err := removeFiles(act.Files); err != nil {
			return err
		}
	}
	rec.Acts = addressActs(rec.Acts)
	return a.undo(ctx, rec, spaces, spaces.Release)
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

// tidyTables takes tables without elements, when nobody else is busy: who is will do it. Errors do not matter to the DEL
// that is done.
func (a *Attacher) tidyTables(ctx context.Context, tables []state.Table) {
	if len(tables) == 0 {
		return
	}
	locks, ok := a.cfg.Locks.(interface {
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
	if err := a.removeShared(ctx, state.Fragment{Host: state.Space{Tables: tables}}); err != nil {
		a.cfg.Log.Warn("empty table stays", "err", err)
	}
}
