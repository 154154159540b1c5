// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"go.etcd.io/bbolt"
)

// ErrStuck is wrapped when writes do not end, or panic: only another process can help.
var ErrStuck = errors.New("writes are stuck")

const (
	// healthFresh is how long one look serves everyone that asks: a write for each question would be at the mercy of
	// those that ask.
	healthFresh = time.Second
	// healthWait is how long a write may take before it counts as stuck.
	healthWait = 4 * time.Second
)

// health is what the last write that only looks has shown.
type health struct {
	mu    sync.Mutex
	doing chan struct{} // closed when the write under way ends; nil when there is none
	fresh bool          // err is the answer, without another write
	err   error         // of the last one that ended
}

// Health writes a transaction without content, and reports how that went: ErrStuck when it does not end within four
// seconds or panics, another error when the file cannot be written.
func (l *Ledger) Health() error {
	h := &l.health
	h.mu.Lock()
	if h.fresh {
		defer h.mu.Unlock()
		return h.err
	}
	if h.doing == nil {
		h.doing = make(chan struct{})
		go l.look(h.doing)
	}
	doing := h.doing
	h.mu.Unlock()
	t := time.NewTimer(healthWait)
	defer t.Stop()
	select {
	case <-doing:
		h.mu.Lock()
		defer h.mu.Unlock()
		return h.err
	case <-t.C:
		return fmt.Errorf("ledger %s: %w: none has ended for %s", l.dir, ErrStuck, healthWait)
	}
}

func (h *health) stale() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.fresh = false
}

// look is the write. At most one is under way, however long it takes.
func (l *Ledger) look(done chan struct{}) {
	err := l.write(func(*bbolt.Bucket) error { return nil })
	if errors.Is(err, errPanic) {
		err = fmt.Errorf("%w: %w", ErrStuck, err)
	}
	l.health.mu.Lock()
	defer l.health.mu.Unlock()
	l.health.err, l.health.doing, l.health.fresh = l.fault(err), nil, true
	time.AfterFunc(healthFresh, l.health.stale)
	close(done)
}
