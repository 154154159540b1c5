// SPDX-License-Identifier: Apache-2.0

package cniserver

import (
	"context"
	"sync"
	"time"
)

const (
	// tick is how often the watchdog checks the running calls.
	tick = time.Second
	// idleTicks is how many checks without a call let it sleep.
	idleTicks = 10
)

// watchdog enforces the limits of running calls. It is one goroutine for all calls instead of a timer for each, because
// setting a timer makes the Go runtime wake its poller: this costs a call of a millisecond nothing.
type watchdog struct {
	mu    sync.Mutex
	calls map[*call]struct{}
	awake bool
	wake  chan struct{}
}

func newWatchdog() *watchdog {
	return &watchdog{calls: map[*call]struct{}{}, wake: make(chan struct{}, 1)}
}

func (w *watchdog) add(c *call) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.calls[c] = struct{}{}
	if !w.awake {
		w.awake = true
		w.wake <- struct{}{} // never blocks: sent only while the watchdog waits for it
	}
}

func (w *watchdog) remove(c *call) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.calls, c)
}

// running returns the number of running calls.
func (w *watchdog) running() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.calls)
}

// run runs until ctx ends.
func (w *watchdog) run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-w.wake:
		}
		w.watch(ctx)
	}
}

// watch checks the calls at every tick, and returns after idleTicks ticks without one.
func (w *watchdog) watch(ctx context.Context) {
	t := time.NewTicker(tick)
	defer t.Stop()
	for idle := 0; idle < idleTicks; idle++ {
		select {
		case <-ctx.Done():
			return
		case now := <-t.C:
			if w.check(now) {
				idle = 0
			}
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.calls) == 0 {
		w.awake = false
		return
	}
	w.wake <- struct{}{}
}

// check enforces the limits and reports whether there was any call.
func (w *watchdog) check(now time.Time) bool {
	w.mu.Lock()
	calls := make([]*call, 0, len(w.calls))
	for c := range w.calls {
		calls = append(calls, c)
	}
	w.mu.Unlock()
	for _, c := range calls {
		c.enforceLimits(now)
	}
	return len(calls) > 0
}
