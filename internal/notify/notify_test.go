// SPDX-License-Identifier: Apache-2.0

package notify

import (
	"sync"
	"testing"
)

// Pending notifications are merged into one; one that comes after a receive is separate.
func TestCoalesce(t *testing.T) {
	c := New()
	for range 2 {
		for range 3 {
			c.Notify()
		}
		<-c
		select {
		case <-c:
			t.Fatal("notified more than once")
		default:
		}
	}
	Chan(nil).Notify() // does not wait
}

// However many goroutines change the state, the receiver has seen the last change when it has received the last
// notification.
func TestNothingIsMissed(t *testing.T) {
	const writers, changes = 8, 1000
	c := New()
	var mu sync.Mutex
	state := 0
	var wg sync.WaitGroup
	for range writers {
		wg.Go(func() {
			for range changes {
				mu.Lock()
				state++
				mu.Unlock()
				c.Notify()
			}
		})
	}
	for seen := 0; seen < writers*changes; {
		<-c
		mu.Lock()
		seen = state
		mu.Unlock()
	}
	wg.Wait()
}
