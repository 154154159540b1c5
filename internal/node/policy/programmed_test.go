// SPDX-License-Identifier: Apache-2.0

package policy_test

import (
	"testing"
	"time"

	"github.com/weft-net/weft/internal/node/policy"
)

// TestProgrammed: the time from a changed object until the kernel's rules follow it is reported for each write, and none
// without a change.
func TestProgrammed(t *testing.T) {
	w := newWorld(t)
	took := make(chan time.Duration, 100)
	w.start(func(c *policy.Config) { c.Programmed = func(d time.Duration) { took <- d } })
	for end := time.Now().Add(time.Minute); !w.Known(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("policies are not known")
		}
	}
	for len(took) > 0 { // an object of the beginning
		<-took
	}
	w.manifest("late", "apiVersion: v1\nkind: Namespace\nmetadata: {name: late}\n")
	select {
	case d := <-took:
		if d <= 0 || d > time.Minute {
			t.Errorf("it took %s", d)
		}
	case <-time.After(time.Minute):
		t.Fatal("no write is reported")
	}
}
