// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// TestGateSpreads: agents that lost the server at one moment do not come back at one moment.
func TestGateSpreads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const agents, bucket = 1000, 500 * time.Millisecond
		begin := time.Now()
		there := begin.Add(time.Minute)
		var mu sync.Mutex
		var running sync.WaitGroup
		back := map[time.Duration]int{}
		for range agents {
			g := &gate{after: time.After}
			g.leave(false, false)
			running.Go(func() {
				for {
					tries, err := g.enter(t.Context(), nil)
					if err != nil {
						t.Error(err)
						return
					}
					now := time.Now()
					if g.leave(tries, !now.Before(there)); now.Before(there) {
						continue
					}
					mu.Lock()
					back[now.Sub(there).Truncate(bucket)]++
					mu.Unlock()
					return
				}
			})
		}
		running.Wait()
		for at, n := range back {
			if n > agents/5 {
				t.Errorf("%d of %d agents came back within %s after %s", n, agents, bucket, at)
			}
		}
		if len(back) < 8 {
			t.Errorf("all agents came back within %s: %v", time.Duration(len(back))*bucket, back)
		}
	})
}

// TestGate: while the server is away one of many watches tries at a time, in growing intervals. When it responds all
// continue at once; one whose caller ends while it is to try leaves this to another one.
func TestGate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := &gate{after: time.After}
		if tries, err := g.enter(t.Context(), nil); tries || err != nil {
			t.Fatal("the first request waits", tries, err)
		}
		g.leave(false, false)
		begin := time.Now()
		there := begin.Add(time.Minute)
		var mu sync.Mutex
		attempts, waited, passed := 0, 0, 0
		try := func(ctx context.Context) {
			for {
				tries, err := g.enter(ctx, func() { mu.Lock(); waited++; mu.Unlock() })
				if err != nil {
					return
				}
				mu.Lock()
				attempts++
				mu.Unlock()
				responded := !time.Now().Before(there)
				g.leave(tries, responded)
				if responded {
					mu.Lock()
					passed++
					mu.Unlock()
					return
				}
			}
		}
		ended, end := context.WithTimeout(t.Context(), time.Second)
		defer end()
		var running sync.WaitGroup
		for i := range 10 {
			ctx := t.Context()
			if i%2 == 0 {
				ctx = ended
			}
			running.Go(func() { try(ctx) })
		}
		running.Wait()
		took := time.Since(begin)
		if took < time.Minute || took > time.Minute+backoffMax {
			t.Errorf("back after %s", took)
		}
		// Delays are between half of and all of 0.5, 1, 2, 4, 5, 5 … seconds.
		if fewest, most := 13+5, 27+5; attempts < fewest || attempts > most {
			t.Errorf("%d attempts, want %d to %d", attempts, fewest, most)
		}
		if passed != 5 || waited < 10 {
			t.Errorf("%d passed, %d waited", passed, waited)
		}
		if tries, err := g.enter(t.Context(), nil); tries || err != nil {
			t.Error("it waits after the server has responded", tries, err)
		}
	})
}
