// SPDX-License-Identifier: Apache-2.0

package attach

import (
	"context"
	"fmt"

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
		if rec.Boot == a.cfg.Boot && rec.Stage == Done {
			report.Kept++
			continue
		}
		if err := a.recoverOne(ctx, rec); err != nil {
			report.Problems = append(report.Problems, fmt.Errorf("undo of %s: %w", rec.Key(), err))
			continue
		}
		undone = append(undone, rec)
	}
	return report, a.bringOut(ctx, undone, &report)
}

// recoverOne undoes one record. A foreign plugin that hangs must not keep the agent from starting.
func (a *Attacher) recoverOne(ctx context.Context, rec Record) error {
	ctx, cancel := context.WithTimeout(ctx, recoverTime)
	defer cancel()
	spaces, done := a.recordSpaces(rec)
	defer done()
	if a.cfg.Reaper != nil {
		return a.undo(ctx, rec, spaces, spaces.Release)
	}
	return a.undo(ctx, rec, spaces, spaces.Remove)
}

// bringOut waits for the dead links, takes shared objects and forgets the records.
func (a *Attacher) bringOut(ctx context.Context, undone []Record, report *Report) error {
	if a.cfg.Reaper != nil {
		a.cfg.Reaper.Kick()
		if err := a.cfg.Reaper.Wait(ctx); err != nil {
			return fmt.Errorf("dead links: %w", err)
		}
	}
	var shared state.Fragment
	for _, rec := range undone {
		if f, any := a.sharedOf(rec); any && rec.Boot == a.cfg.Boot {
			shared.Merge(f)
		}
	}
	if !shared.Host.Empty() {
		if err := a.removeShared(ctx, shared); err != nil {
			report.Problems = append(report.Problems, err)
			return nil // The records stay, so the next start tries again.
		}
	}
	for _, rec := range undone {
		if err := a.forget(rec.Key()); err != nil {
			report.Problems = append(report.Problems, err)
			continue
		}
		if rec.Boot == a.cfg.Boot {
			report.Undone++
		} else {
			report.Dropped++
		}
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
