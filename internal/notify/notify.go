// SPDX-License-Identifier: Apache-2.0

// Package notify is a wake-up channel: many goroutines report a change, one goroutine handles it.
//
// A Chan holds one notification. Notify never waits: while one is pending, further ones are merged with it. The
// receiver reads the state after the receive, so it misses no change:
//
//	changed := notify.New()
//	// any goroutine, after it has changed the state:
//	changed.Notify()
//	// one goroutine:
//	for {
//		select {
//		case <-changed:
//			inspect()
//		case <-ctx.Done():
//			return
//		}
//	}
//
// Two goroutines that receive from one Chan share its notifications: each needs its own Chan to receive all.
//
// internal/kernel does not use the package: drivers import no other package of weft's.
package notify

// Chan is a wake-up channel; New makes one. The zero Chan is never woken.
type Chan chan struct{}

// New makes a Chan without a notification.
func New() Chan { return make(Chan, 1) }

// Notify wakes the receiver, now or at its next receive.
func (c Chan) Notify() {
	select {
	case c <- struct{}{}:
	default:
	}
}
