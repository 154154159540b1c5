// SPDX-License-Identifier: Apache-2.0

package sandbox

import "time"

// backOff delays the restarts of containers: none before the first, then start, doubling up to limit; a container that
// ran for reset begins again.
type backOff struct {
	start, limit, reset time.Duration
	entries             map[string]backOffEntry
}

type backOffEntry struct {
	delay time.Duration
	since time.Time // when the restart that set the delay was made
}

func newBackOff(t Times) *backOff {
	return &backOff{start: t.BackOff, limit: t.BackOffCap, reset: t.BackOffReset, entries: map[string]backOffEntry{}}
}

// left is how long a container that ended at finished must still wait.
func (b *backOff) left(name string, finished, now time.Time) time.Duration {
	e, ok := b.entries[name]
	if !ok || finished.Sub(e.since) >= b.reset {
		return 0
	}
	return max(0, finished.Add(e.delay).Sub(now))
}

// next records that the container is restarted now.
func (b *backOff) next(name string, finished, now time.Time) {
	e, ok := b.entries[name]
	switch {
	case !ok || finished.Sub(e.since) >= b.reset:
		e.delay = b.start
	default:
		e.delay = min(2*e.delay, b.limit)
	}
	e.since = now
	b.entries[name] = e
}

// delay is the present delay, for messages.
func (b *backOff) delay(name string) time.Duration { return b.entries[name].delay }
