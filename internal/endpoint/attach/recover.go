// SPDX-License-Identifier: Apache-2.0

package attach

import (
	"context"
	"errors"
	"fmt"

	"github.com/weft-net/weft/internal/kernel"
	"github.com/weft-net/weft/internal/state"
)

// Report says what Recover found.
type Report struct {
	// Kept are finished attachments, Undone those a killed agent left, Dropped those of another boot.
	Kept, Undone, Dropped int
	// Problems are records that could not be read or undone; they stay.
	Problems []error
}

// String is the report in one line.
func (r Report) String() string {
	return fmt.Sprintf("%d attachments kept, %d undone, %d of another boot dropped, %d problems",
		r.Kept, r.Undone, r.Dropped, len(r.Problems))
}

// Recover brings memory and kernel together when an agent starts, before it takes calls: what was not finished is undone,
// what an earlier boot left is forgotten and its addresses are free. The reaper must be running.
func (a *Attacher) Recover(ctx context.Context) (Report, error) {
	var report Report
	release, err := a.cfg.Locks.Alone(ctx)
	if err != nil {
		return report, err
	}
	defer release()
	records, err := a.cfg.Memory.List()
	if err != nil {
		report.Problems = append(report.Problems, err)
	}
	var undone []Record
	for _, rec := range records {
		a.mourn.born(rec)
		if rec.Boot == a.cfg.Boot {
			a.brought.take(rec, a.broughtBy(rec))
		}
		if rec.Boot == a.cfg.Boot && rec.Stage == Done {
			a.mark(rec)
			a.noted(rec)
			report.Kept++
			continue
		}
		if err := a.recoverOne(ctx, rec); err != nil {
			report.Problems = append(report.Problems, fmt.Errorf("undo of %s: %w", rec.Key(), err))
			continue
		}
		undone = append(undone, rec)
	}
	forgotten, err := a.bringOut(ctx, undone)
	if err != nil {
		report.Problems = append(report.Problems, err)
	}
	for _, rec := range forgotten {
		if rec.Boot == a.cfg.Boot {
			report.Undone++
		} else {
			report.Dropped++
		}
	}
	return report, ctx.Err()
}

// recoverOne undoes one record. A foreign plugin that hangs must not keep the agent from starting.
func (a *Attacher) recoverOne(ctx context.Context, rec Record) error {
	ctx, cancel := context.WithTimeout(ctx, recoverTime)
	defer cancel()
	spaces, done := a.recordSpaces(rec)
	defer done()
	return a.undo(ctx, rec, spaces, spaces.Release)
}

// bringOut waits until the links of released records are dead, takes shared objects and forgets the records; those that
// it cannot bring to an end stay. The caller is alone.
func (a *Attacher) bringOut(ctx context.Context, undone []Record) (forgotten []Record, err error) {
	if err := a.reap(ctx); err != nil {
		return nil, err
	}
	var shared state.Fragment
	for _, rec := range undone {
		if f, any := a.sharedOf(rec); any && rec.Boot == a.cfg.Boot {
			shared.Merge(f)
		}
	}
	if !shared.Host.Empty() {
		if err := a.removeShared(ctx, shared); err != nil {
			return nil, err
		}
	}
	var errs []error
	for _, rec := range undone {
		if err := a.forget(rec.Key()); err != nil {
			errs = append(errs, err)
			continue
		}
		forgotten = append(forgotten, rec)
	}
	return forgotten, errors.Join(errs...)
}

// reap waits until no dead link is left. Deleting a hundred links together takes as long as deleting one, so a standalone
// plugin that has many to delete makes them a reaper as well.
func (a *Attacher) reap(ctx context.Context) (err error) {
	reaper := a.cfg.Reaper
	if reaper == nil {
		var stop context.CancelFunc
		var run context.Context
		run, stop = context.WithCancel(ctx)
		reaper = kernel.NewReaper(a.cfg.Host, a.cfg.Log)
		done := make(chan error, 1)
		go func() { done <- reaper.Run(run) }()
		defer func() { stop(); err = errors.Join(err, <-done) }()
	}
	reaper.Kick()
	if err := reaper.Wait(ctx); err != nil {
		return fmt.Errorf("dead links: %w", err)
	}
	return nil
}

// Leftover undoes what a killed call left, unless it is finished or gone by now. The caller holds the container's lock.
func (a *Attacher) Leftover(ctx context.Context, rec Record) error {
	now, found, err := a.cfg.Memory.Get(rec.Key())
	if err != nil || !found || now.Stage == Done {
		return err
	}
	spaces, done := a.recordSpaces(now)
	defer done()
	return a.abandon(ctx, now, spaces)
}
