// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"go.etcd.io/bbolt"
)

// ErrStuck is wrapped if writes do not end, or panic: the process must be restarted.
var ErrStuck = errors.New("writes are stuck")

const (
	// healthFresh is how long one probe's result is reused, so that frequent callers cause no more writes.
	healthFresh = time.Second
	// healthWait is how long a write may take before it counts as stuck.
	healthWait = 4 * time.Second
)

// health is the result of the last probe.
type health struct {
	mu      sync.Mutex
	running chan struct{} // closed when the probe in progress ends; nil: none
	fresh   bool          // err is returned without another probe
	err     error         // of the last probe
}

// Health probes the ledger with an empty transaction. It returns ErrStuck if the transaction does not end within four
// seconds or panics, and another error if the file cannot be written.
func (l *Ledger) Health() error {
	h := &l.health
	h.mu.Lock()
	if h.fresh {
		defer h.mu.Unlock()
		return h.err
	}
	if h.running == nil {
		h.running = make(chan struct{})
		go l.probe(h.running)
	}
	doing := h.running
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

// probe writes an empty transaction. At most one probe is in progress, however long it takes.
func (l *Ledger) probe(done chan struct{}) {
	err := l.write(func(*bbolt.Bucket) error { return nil })
	if errors.Is(err, errPanic) {
		err = fmt.Errorf("%w: %w", ErrStuck, err)
	}
	l.health.mu.Lock()
	defer l.health.mu.Unlock()
	l.health.err, l.health.running, l.health.fresh = l.wrap(err), nil, true
	time.AfterFunc(healthFresh, l.health.stale)
	close(done)
}
