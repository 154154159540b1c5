// SPDX-License-Identifier: Apache-2.0

package release

import (
	"context"
	"errors"
	"testing"
	"time"

	"k8s.io/client-go/util/flowcontrol"
)

// TestWithoutDeadline: a limiter of calls, whose next turn comes after the end of the wait, lets the wait end as such.
func TestWithoutDeadline(t *testing.T) {
	busy := flowcontrol.NewTokenBucketRateLimiter(1.0/3600, 1) // as the client has one, with more
	busy.Accept()
	late, end := context.WithTimeout(t.Context(), time.Minute)
	defer end()
	if err := busy.Wait(late); err == nil || late.Err() != nil {
		t.Fatalf("a limiter waits for the deadline by now: %v, %v", err, late.Err())
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	calls, stop := withoutDeadline(ctx)
	defer stop()
	if err := busy.Wait(calls); !errors.Is(err, context.Canceled) || !errors.Is(ctx.Err(), context.DeadlineExceeded) {
		t.Errorf("the call ends with %v, the wait with %v", err, ctx.Err())
	}
}
