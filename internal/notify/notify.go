// SPDX-License-Identifier: Apache-2.0

// Package notify is a wake-up channel: many say that something has changed, one goroutine looks at it.
//
// A Chan holds one notification. Notify never waits: while one is pending, further ones are the same. Whoever receives
// it looks at the state after the receive, so no change is missed:
//
//	changed := notify.New()
//	// any goroutine, after it has changed the state:
//	changed.Notify()
//	// one goroutine:
//	for {
//		select {
//		case <-changed:
//			look()
//		case <-ctx.Done():
//			return
//		}
//	}
//
// Two goroutines that receive from one Chan share its notifications: each needs a Chan of its own to hear of all.
//
// internal/kernel does not use the package: drivers import no other room.
package notify

// Chan is a wake-up channel; New makes one. The zero Chan is never woken.
type Chan chan struct{}

// New makes a Chan without a notification.
func New() Chan { return make(Chan, 1) }

// Notify wakes the receiver, now or when it receives next.
func (c Chan) Notify() {
	select {
	case c <- struct{}{}:
	default:
	}
}
