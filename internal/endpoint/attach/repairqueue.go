// SPDX-License-Identifier: Apache-2.0

package attach

import (
	"context"
	"errors"
	"math"
	"sync"
	"time"

	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/notify"
)

const (
	// repairQuiet gathers changes: a flush reports each route, and looks again whether anything is left, so that what was
	// put back in between would go a second time.
	repairQuiet = 100 * time.Millisecond
	// leastGap is between two looks at one attachment. It doubles with each look that finds nothing to do, up to mostGap:
	// who is root in a pod may change things without end.
	leastGap, mostGap = 300 * time.Millisecond, 30 * time.Second
	// repairAgain is when a repair that failed is tried again; it doubles up to repairPeriod.
	repairAgain = time.Second
	// repairBusy is when an attachment is looked at again that another call is about.
	repairBusy = 100 * time.Millisecond
	// repairPeriod is how long a pass over all attachments takes, one after the other. It finds what the kernel does not
	// report: settings in pods, and what was lost while events were.
	repairPeriod = 30 * time.Minute
	// lostGap is between two passes because events of pods were lost.
	lostGap = 30 * time.Second
)

// repairQueue is which attachments are to be looked at, and when.
type repairQueue struct {
	mu    sync.Mutex
	due   map[model.AttachmentKey]time.Time
	pace  map[model.AttachmentKey]pace
	lost  time.Time // the last pass because events of pods were lost
	wake  notify.Chan
	round []model.AttachmentKey // of the pass over all
	step  time.Duration         // between two of them
}

// pace is what is remembered of the looks at an attachment.
type pace struct {
	last   time.Time
	gap    time.Duration
	failed time.Duration
	said   string
}

func newRepairQueue() *repairQueue {
	return &repairQueue{
		due: map[model.AttachmentKey]time.Time{}, pace: map[model.AttachmentKey]pace{}, wake: notify.New(),
	}
}

// add has attachments be looked at soon.
func (q *repairQueue) add(now time.Time, keys ...model.AttachmentKey) {
	if len(keys) == 0 {
		return
	}
	q.mu.Lock()
	for _, key := range keys {
		at := now.Add(repairQuiet)
		if p, looked := q.pace[key]; looked && p.last.Add(p.gap).After(at) {
			at = p.last.Add(p.gap)
		}
		if have, waits := q.due[key]; !waits || at.Before(have) {
			q.due[key] = at
		}
	}
	q.mu.Unlock()
	q.wake.Notify()
}

// mayLose reports whether a pass may be made because events of pods were lost: a pod can cause that at will.
func (q *repairQueue) mayLose(now time.Time) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if !q.lost.IsZero() && now.Sub(q.lost) < lostGap {
		return false
	}
	q.lost = now
	return true
}

// take gives an attachment that is due, or how long none will be.
func (q *repairQueue) take(now time.Time) (key model.AttachmentKey, is bool, wait time.Duration) {
	q.mu.Lock()
	defer q.mu.Unlock()
	wait = math.MaxInt64
	for k, at := range q.due {
		if !at.After(now) {
			delete(q.due, k)
			return k, true, 0
		}
		wait = min(wait, at.Sub(now))
	}
	return key, false, wait
}

// looked notes the outcome of a look and reports whether an error is a new one.
func (q *repairQueue) looked(key model.AttachmentKey, drifted, there bool, err error, now time.Time) (news bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if !there {
		delete(q.pace, key)
		return false
	}
	p := q.pace[key]
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		q.due[key] = now.Add(repairBusy)
		return false
	case err != nil:
		p.failed = min(max(2*p.failed, repairAgain), repairPeriod)
		q.due[key] = now.Add(p.failed)
		news = p.said != err.Error()
		p.said = err.Error()
	case drifted || now.Sub(p.last) > 2*mostGap:
		p.gap, p.failed, p.said = leastGap, 0, ""
	default:
		p.gap, p.failed, p.said = min(max(2*p.gap, leastGap), mostGap), 0, ""
	}
	p.last = now
	q.pace[key] = p
	return news
}

// next is the next attachment of the pass over all, and the time until the one behind it.
func (q *repairQueue) next(all func() []model.AttachmentKey) (key model.AttachmentKey, is bool, wait time.Duration) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.round) == 0 {
		q.round = all()
		q.step = min(repairPeriod/time.Duration(max(len(q.round), 1)), repairPeriod/10)
	}
	if len(q.round) == 0 {
		return key, false, q.step
	}
	key, q.round = q.round[0], q.round[1:]
	return key, true, q.step
}
