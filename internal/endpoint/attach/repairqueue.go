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
	// repairQuiet coalesces changes: `ip route flush` reports each route and checks again whether any is left, so that a
	// route that is repaired in between would be deleted again.
	repairQuiet = 100 * time.Millisecond
	// minGap is the least time between two checks of an attachment. It doubles with each check that finds no drift, up to
	// maxGap: root in a pod can cause changes at will, and so can programs on the node that change objects of their own
	// next to weft's. Each cause has its own gap, so that neither delays other repairs. It does not double when an
	// object of the attachment on the node was removed or overwritten.
	minGap, maxGap = 300 * time.Millisecond, 30 * time.Second
	// repairRetry is when a failed repair is retried; it doubles up to repairPeriod.
	repairRetry = time.Second
	// repairBusy is when an attachment is checked again that another call had locked.
	repairBusy = 100 * time.Millisecond
	// repairPeriod is the duration of a pass over all attachments. It finds what the kernel does not report: sysctls in
	// pods, and lost events.
	repairPeriod = 30 * time.Minute
	// lostGap is the least time between two passes that lost events of pods cause.
	lostGap = 30 * time.Second
)

// cause is why an attachment is checked.
type cause int

const (
	// changeOnNode: something changed next to the attachment's objects on the node.
	changeOnNode cause = iota
	// lossOnNode: an object of the attachment on the node was removed or overwritten.
	lossOnNode
	changeInPod
	causes // how many there are
)

// causeSet holds the causes of one check. A check of the pass has none.
type causeSet [causes]bool

// repairQueue schedules the checks of attachments.
type repairQueue struct {
	mu       sync.Mutex
	due      map[model.AttachmentKey]dueCheck
	backoffs map[model.AttachmentKey]backoff
	lost     time.Time // the last pass that lost events of pods caused
	wake     notify.Chan
	round    []model.AttachmentKey // the rest of the pass over all
	step     time.Duration         // between two attachments of the pass
}

// dueCheck is when and why an attachment is to be checked.
type dueCheck struct {
	at time.Time
	by causeSet
}

// backoff is the schedule of an attachment's checks.
type backoff struct {
	last    time.Time
	gap     [causes]time.Duration
	retry   time.Duration
	lastErr string
}

func newRepairQueue() *repairQueue {
	return &repairQueue{
		due: map[model.AttachmentKey]dueCheck{}, backoffs: map[model.AttachmentKey]backoff{}, wake: notify.New(),
	}
}

// add schedules checks of attachments.
func (q *repairQueue) add(now time.Time, by cause, keys ...model.AttachmentKey) {
	if len(keys) == 0 {
		return
	}
	q.mu.Lock()
	for _, key := range keys {
		c, waits := q.due[key]
		at := now.Add(repairQuiet)
		if p, seen := q.backoffs[key]; seen {
			if next := p.last.Add(max(p.gap[by], minGap)); next.After(at) {
				at = next
			}
		}
		if !waits || at.Before(c.at) {
			c.at = at
		}
		c.by[by] = true
		q.due[key] = c
	}
	q.mu.Unlock()
	q.wake.Notify()
}

// allowLossPass reports whether lost events of pods may trigger a pass now: a pod can cause them at will.
func (q *repairQueue) allowLossPass(now time.Time) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if !q.lost.IsZero() && now.Sub(q.lost) < lostGap {
		return false
	}
	q.lost = now
	return true
}

// take returns an attachment that is due and why, or the time until the next one is.
func (q *repairQueue) take(now time.Time) (key model.AttachmentKey, by causeSet, is bool, wait time.Duration) {
	q.mu.Lock()
	defer q.mu.Unlock()
	wait = math.MaxInt64
	for k, c := range q.due {
		if !c.at.After(now) {
			delete(q.due, k)
			return k, c.by, true, 0
		}
		wait = min(wait, c.at.Sub(now))
	}
	return key, by, false, wait
}

// finished stores the outcome of a check and reports whether its error is a new one.
func (q *repairQueue) finished(
	key model.AttachmentKey, by causeSet, drifted, there bool, err error, now time.Time,
) (newError bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if !there {
		delete(q.backoffs, key)
		return false
	}
	p := q.backoffs[key]
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		q.due[key] = dueCheck{at: now.Add(repairBusy), by: by}
		return false
	case err != nil:
		p.retry = min(max(2*p.retry, repairRetry), repairPeriod)
		q.due[key] = dueCheck{at: now.Add(p.retry), by: by}
		newError = p.lastErr != err.Error()
		p.lastErr = err.Error()
	case drifted || now.Sub(p.last) > 2*maxGap:
		p.gap, p.retry, p.lastErr = [causes]time.Duration{}, 0, ""
	default:
		p.retry, p.lastErr = 0, ""
		for i, is := range by {
			if is && cause(i) != lossOnNode {
				p.gap[i] = min(max(2*p.gap[i], minGap), maxGap)
			}
		}
	}
	p.last = now
	q.backoffs[key] = p
	return newError
}

// next returns the next attachment of the pass over all, and the time until the one after it.
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
