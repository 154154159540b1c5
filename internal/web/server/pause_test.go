// SPDX-License-Identifier: Apache-2.0

package server

import (
	"testing"
	"time"
)

// A view whose reading takes long is read less often.
func TestPause(t *testing.T) {
	s := Source{Interval: 3 * time.Second}
	for took, want := range map[time.Duration]time.Duration{
		0: 3 * time.Second, time.Second: 3 * time.Second, 4 * time.Second: 12 * time.Second, time.Hour: time.Minute,
	} {
		if got := s.pause(took); got != want {
			t.Errorf("after %v a pause of %v, want %v", took, got, want)
		}
	}
}
