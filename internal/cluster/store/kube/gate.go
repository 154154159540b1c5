// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"context"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
)

// gate lets one watch at a time try whether the server is there, as long as it is not. Each kind is watched separately,
// and without a gate each of them connects to a server that is starting, in each of thousands of agents, as soon as it
// listens. The one that tries waits for a random time, so that agents are spread over the longest delay.
type gate struct {
	after func(time.Duration) <-chan time.Time

	mu sync.Mutex
	// opened is closed when the server responds again; nil while it does.
	opened chan struct{}
	trying bool
	delay  time.Duration
}

// enter waits until a request may be made: at once if the server has responded to the last one. tries reports that the
// others wait for this one. The caller reports the outcome by leave. waits, which may be nil, is called before a wait.
func (g *gate) enter(ctx context.Context, waits func()) (tries bool, err error) {
	for first := true; ; first = false {
		g.mu.Lock()
		opened, delay := g.opened, wait.Jitter(g.delay/2, 1)
		if opened == nil {
			g.mu.Unlock()
			return false, ctx.Err()
		}
		tries := !g.trying
		g.trying = true
		g.mu.Unlock()
		if first && waits != nil {
			waits()
		}
		var due <-chan time.Time
		if tries {
			due = g.after(delay)
		}
		select {
		case <-due:
			return true, nil
		case <-opened: // the server has responded, or another one is to try
		case <-ctx.Done():
			if tries {
				g.leave(true, false)
			}
			return false, ctx.Err()
		}
	}
}

// leave reports whether the server has responded, even by an error of its own. tries is the result of enter.
func (g *gate) leave(tries, responded bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	switch {
	case responded:
		if g.opened != nil {
			close(g.opened)
		}
		g.opened, g.trying, g.delay = nil, false, 0
	case g.opened == nil:
		g.opened, g.trying, g.delay = make(chan struct{}), false, backoffFirst
	case tries:
		g.trying, g.delay = false, min(2*g.delay, backoffMax)
		close(g.opened) // another one is to try
		g.opened = make(chan struct{})
	}
}
