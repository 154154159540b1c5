// SPDX-License-Identifier: Apache-2.0

package sandbox

import (
	"testing"
	"time"
)

// TestBackOff: with the kubelet's times, restarts wait for 0 s, 10 s, 20 s and so on, up to 5 min; the delay is reset
// after 10 min.
func TestBackOff(t *testing.T) {
	b := newBackOff(KubeletTimes())
	now := time.Unix(0, 0)
	for i, want := range []time.Duration{0, 10, 20, 40, 80, 160, 300, 300} {
		if left := b.remaining("c", now, now); left != want*time.Second {
			t.Errorf("restart %d waits %v, want %v", i+1, left, want*time.Second)
		}
		now = now.Add(want * time.Second)
		b.next("c", now.Add(-want*time.Second), now)
	}
	if left := b.remaining("other", now, now); left != 0 {
		t.Errorf("another container waits %v", left)
	}
	finished := now.Add(10 * time.Minute)
	if left := b.remaining("c", finished, finished); left != 0 {
		t.Errorf("after running for ten minutes it waits %v", left)
	}
	b.next("c", finished, finished)
	if left := b.remaining("c", finished.Add(time.Second), finished.Add(time.Second)); left != 10*time.Second {
		t.Errorf("then it waits %v, want 10s", left)
	}
}
