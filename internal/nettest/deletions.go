// SPDX-License-Identifier: Apache-2.0

package nettest

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/weft-net/weft/internal/inotify"
	"github.com/weft-net/weft/internal/netns"
)

// Deletions reports deleted namespaces until the test ends: by the kernel's events alone, without a periodic check.
func Deletions(t testing.TB) *netns.Deletions {
	t.Helper()
	events, err := inotify.New()
	if err != nil {
		t.Fatal(err)
	}
	d := netns.NewDeletions(events, func(time.Duration) <-chan time.Time { return nil })
	ctx, cancel := context.WithCancel(context.Background())
	var run sync.WaitGroup
	run.Go(func() { _ = events.Run(ctx) })
	run.Go(func() { _ = d.Run(ctx) })
	t.Cleanup(func() { cancel(); run.Wait() })
	return d
}
