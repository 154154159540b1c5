// SPDX-License-Identifier: Apache-2.0

package sandbox

import "time"

// backOff delays the restarts of containers, as the kubelet does: the first restart is immediate, the second waits for
// start, and each later one twice as long, up to limit. A container that ran for reset starts over.
type backOff struct {
	start, limit, reset time.Duration
	entries             map[string]backOffEntry
}

type backOffEntry struct {
	delay time.Duration
	since time.Time // of the last restart
}

func newBackOff(t Times) *backOff {
	return &backOff{start: t.BackOff, limit: t.BackOffCap, reset: t.BackOffReset, entries: map[string]backOffEntry{}}
}

// remaining returns how long a container that exited at finished must still wait.
func (b *backOff) remaining(name string, finished, now time.Time) time.Duration {
	e, ok := b.entries[name]
	if !ok || finished.Sub(e.since) >= b.reset {
		return 0
	}
	return max(0, finished.Add(e.delay).Sub(now))
}

// next records a restart of the container.
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

// delay returns the current delay, for messages.
func (b *backOff) delay(name string) time.Duration { return b.entries[name].delay }
