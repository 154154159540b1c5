// SPDX-License-Identifier: Apache-2.0

package attach

import (
	"context"
	"fmt"
	"time"
)

// recoverTime bounds the undo of one record when an agent starts.
const recoverTime = 15 * time.Second

// recoverer handles the records that a killed process has left.
type recoverer struct {
	boot       string
	namespaces *namespaces
	locks      *lockSet
	records    *notifyingStore
	owners     *owners
	repairer   *repairer
	unmanaged  *unmanaged
	dscp       *dscpMarks
	vms        *podVMs
	rollback   *rollback
}

// Report summarizes a Recover.
type Report struct {
	// Kept counts finished attachments, Undone those that a killed agent had left, Dropped those of another boot.
	Kept, Undone, Dropped int
	// Problems are the errors of records, also of VMs, that could not be read or undone; those records stay.
	Problems []error
}

// String returns the report in one line.
func (r Report) String() string {
	return fmt.Sprintf("%d attachments kept, %d undone, %d of another boot dropped, %d problems",
		r.Kept, r.Undone, r.Dropped, len(r.Problems))
}

// run reconciles records and kernel when an agent starts, before it accepts calls: unfinished attachments and VM
// interfaces are undone; records of an earlier boot are dropped and their addresses released. The reaper must be
// running.
func (r *recoverer) run(ctx context.Context) (Report, error) {
	var report Report
	release, err := r.locks.main.Lock(ctx)
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
			r.unmanaged.add(rec, r.unmanaged.addrsOf(rec))
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
	forgotten, err := r.rollback.finish(ctx, undone)
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
	r.vms.recover(ctx, &report) // after their attachments
	return report, ctx.Err()
}

// undoOne undoes one record, within recoverTime: a foreign plugin that hangs must not block the agent's start.
func (r *recoverer) undoOne(ctx context.Context, rec Record) error {
	ctx, cancel := context.WithTimeout(ctx, recoverTime)
	defer cancel()
	spaces, done := r.namespaces.ofRecord(rec)
	defer done()
	return r.rollback.undo(ctx, rec, spaces, spaces.Release)
}

// undoUnfinished undoes the attachment of a killed call, unless it is finished or gone by now. The caller holds the
// container's lock.
func (r *recoverer) undoUnfinished(ctx context.Context, rec Record) error {
	now, found, err := r.records.get(rec.Key())
	if err != nil || !found || now.Stage == Done {
		return err
	}
	spaces, done := r.namespaces.ofRecord(now)
	defer done()
	return r.rollback.abandon(ctx, now, spaces)
}
