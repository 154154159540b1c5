// SPDX-License-Identifier: Apache-2.0

package migration

import (
	"testing"
	"time"
)

// TestCopyPause: reading connections takes at most a twentieth of a processor, however many the kernel has.
func TestCopyPause(t *testing.T) {
	for read, want := range map[time.Duration]time.Duration{
		0: copyPeriod, 50 * time.Millisecond: copyPeriod, 300 * time.Millisecond: 6 * time.Second,
	} {
		if got := copyPause(read); got != want {
			t.Errorf("%s after a read of %s, want %s", got, read, want)
		}
	}
}
