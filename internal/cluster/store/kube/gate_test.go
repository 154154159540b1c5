// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// TestGateSpreads: agents that lost the server at one moment do not come back at one moment, the more agents the less.
func TestGateSpreads(t *testing.T) {
	for _, c := range []struct {
		agents int
		most   int // agents within half a second: chance gives up to 220, and 240 of 5,000
		fewest time.Duration
	}{{1000, 300, 4 * time.Second}, {5000, 350, 20 * time.Second}} {
		for _, outage := range []time.Duration{3 * time.Second, time.Minute} {
			t.Run(fmt.Sprintf("%d/%s", c.agents, outage), func(t *testing.T) {
				const bucket = 500 * time.Millisecond
				back := comeBack(t, c.agents, outage, bucket)
				for at, n := range back {
					if n > c.most {
						t.Errorf("%d of %d agents came back within %s after %s", n, c.agents, bucket, at)
					}
				}
				if over := time.Duration(len(back)) * bucket; over < c.fewest {
					t.Errorf("all agents came back within %s: %v", over, back)
				}
			})
		}
	}
}

// comeBack returns how many agents of a cluster come back in which part of the time after an outage.
func comeBack(t *testing.T, agents int, outage, bucket time.Duration) map[time.Duration]int {
	back := map[time.Duration]int{}
	synctest.Test(t, func(t *testing.T) {
		there := time.Now().Add(outage)
		var mu sync.Mutex
		var running sync.WaitGroup
		for range agents {
			g := &gate{after: time.After, nodes: func() int { return agents }}
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
	})
	return back
}

// TestGateStarting: to the watch that tries, a server that refuses requests while it starts is not there yet. To others
// such an error is one of their kind.
func TestGateStarting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &source{s: &Store{gate: gate{after: time.After, nodes: func() int { return 1 }}}}
		ctx := t.Context()
		enter := func() (tries bool, waited time.Duration) {
			begin := time.Now()
			tries, err := f.s.gate.enter(ctx, nil)
			if err != nil {
				t.Fatal(err)
			}
			return tries, time.Since(begin)
		}
		f.leave(ctx, false, errors.New("connection refused"))
		for _, starting := range []error{
			apierrors.NewTooManyRequests("storage is (re)initializing", 1), apierrors.NewServiceUnavailable("starting"), nil,
		} {
			if tries, waited := enter(); !tries || waited == 0 {
				t.Fatalf("before %v: tries %v after %s, want true after a delay", starting, tries, waited)
			}
			f.leave(ctx, true, starting)
		}
		f.leave(ctx, false, apierrors.NewServiceUnavailable("a kind of an aggregated API"))
		if tries, waited := enter(); tries || waited > 0 {
			t.Errorf("tries %v after %s when the server is there, want false at once", tries, waited)
		}
	})
}

// TestGate: while the server is away one of many watches tries at a time, in growing intervals. When it responds all
// continue at once; one whose caller ends while it is to try leaves this to another one.
func TestGate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := &gate{after: time.After, nodes: func() int { return 1 }}
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
