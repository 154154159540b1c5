// SPDX-License-Identifier: Apache-2.0

package cniserver

import (
	"context"
	"sync"
	"time"
)

const (
	// tick is how often the watchdog looks at the calls in flight.
	tick = time.Second
	// patience is how many looks at nothing send it to sleep.
	patience = 10
)

// watchdog looks after the calls in flight: it ends what takes too long. One goroutine for all calls instead of timers
// for each, because setting a timer makes the Go runtime wake its poller: a call of a millisecond pays nothing for this
// one.
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
		w.wake <- struct{}{} // has room: it is sent only when the watchdog waits for it
	}
}

func (w *watchdog) remove(c *call) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.calls, c)
}

// run watches until ctx ends.
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

// watch looks at the calls at every tick, and returns when there was none for a while.
func (w *watchdog) watch(ctx context.Context) {
	t := time.NewTicker(tick)
	defer t.Stop()
	for idle := 0; idle < patience; idle++ {
		select {
		case <-ctx.Done():
			return
		case now := <-t.C:
			if w.look(now) {
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

// look does what is due and tells whether there was any call.
func (w *watchdog) look(now time.Time) bool {
	w.mu.Lock()
	calls := make([]*call, 0, len(w.calls))
	for c := range w.calls {
		calls = append(calls, c)
	}
	w.mu.Unlock()
	for _, c := range calls {
		c.look(now)
	}
	return len(calls) > 0
}
