// SPDX-License-Identifier: Apache-2.0

package attach

import (
	"context"
	"fmt"
	"time"
)

// recoverTime is how long the undo of one record may take when an agent starts.
const recoverTime = 15 * time.Second

// recoverer deals with the records that a killed process left.
type recoverer struct {
	boot       string
	namespaces *namespaces
	locks      *lockSet
	records    *recordStore
	owners     *owners
	repairer   *repairer
	unmanaged  *unmanaged
	dscp       *dscpMarks
	machines   *machinesIn
	undoer     *undoer
}

// Report says what Recover found.
type Report struct {
	// Kept are finished attachments, Undone those a killed agent left, Dropped those of another boot.
	Kept, Undone, Dropped int
	// Problems are records, also of machines, that could not be read or undone; they stay.
	Problems []error
}

// String is the report in one line.
func (r Report) String() string {
	return fmt.Sprintf("%d attachments kept, %d undone, %d of another boot dropped, %d problems",
		r.Kept, r.Undone, r.Dropped, len(r.Problems))
}

// run brings memory and kernel together when an agent starts, before it takes calls: what was not finished is undone,
// of attachments and of the machines upon them; what an earlier boot left is forgotten and its addresses are free. The
// reaper must be running.
func (r *recoverer) run(ctx context.Context) (Report, error) {
	var report Report
	release, err := r.locks.main.Alone(ctx)
	if err != nil {
		return report, err
	}
	defer release()
	records, err := r.records.list()
	if err != nil {
		report.Problems = append(report.Problems, err)
	}
	var undone []Record
	for _, rec := range records {
		r.owners.written(rec)
		if rec.Boot == r.boot {
			r.unmanaged.take(rec, r.unmanaged.of(rec))
		}
		if rec.Boot == r.boot && rec.Stage == Done {
			r.dscp.note(rec)
			r.repairer.written(rec)
			report.Kept++
			continue
		}
		if err := r.undoOne(ctx, rec); err != nil {
			report.Problems = append(report.Problems, fmt.Errorf("undo of %s: %w", rec.Key(), err))
			continue
		}
		undone = append(undone, rec)
	}
	forgotten, err := r.undoer.finish(ctx, undone)
	if err != nil {
		report.Problems = append(report.Problems, err)
	}
	for _, rec := range forgotten {
		if rec.Boot == r.boot {
			report.Undone++
		} else {
			report.Dropped++
		}
	}
	r.machines.recover(ctx, &report) // what is left of them when their attachments have gone
	return report, ctx.Err()
}

// undoOne undoes one record. A foreign plugin that hangs must not keep the agent from starting.
func (r *recoverer) undoOne(ctx context.Context, rec Record) error {
	ctx, cancel := context.WithTimeout(ctx, recoverTime)
	defer cancel()
	spaces, done := r.namespaces.ofRecord(rec)
	defer done()
	return r.undoer.undo(ctx, rec, spaces, spaces.Release)
}

// leftover undoes what a killed call left, unless it is finished or gone by now. The caller holds the container's lock.
func (r *recoverer) leftover(ctx context.Context, rec Record) error {
	now, found, err := r.records.get(rec.Key())
	if err != nil || !found || now.Stage == Done {
		return err
	}
	spaces, done := r.namespaces.ofRecord(now)
	defer done()
	return r.undoer.abandon(ctx, now, spaces)
}
