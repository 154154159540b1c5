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
// listens. The one that tries waits for a random time, so that agents are spread over the longest delay, and in a large
// cluster over the longer time that its number of nodes requires: a server that starts has no room for thousands of
// connections and lists at a time.
type gate struct {
	after func(time.Duration) <-chan time.Time
	nodes func() int

	mu sync.Mutex
	// opened is closed when the server responds again; nil while it does.
	opened chan struct{}
	trying bool
	delay  time.Duration
}

// spreadPerNode is the part of each node in the time over which the agents of a cluster come back, spreadMax its
// limit: at most some 400 agents come within a second.
const spreadPerNode, spreadMax = 5 * time.Millisecond, time.Minute

// wait returns the random time to wait before the next attempt, for a delay that grows with the attempts.
func (g *gate) wait(delay time.Duration) time.Duration {
	if spread := min(time.Duration(g.nodes())*spreadPerNode, spreadMax); spread > delay {
		return wait.Jitter(spread/50, 49)
	}
	return wait.Jitter(delay/2, 1)
}

// enter waits until a request may be made: at once if the server has responded to the last one. tries reports that the
// others wait for this one. The caller reports the outcome by leave. waits, which may be nil, is called before a wait.
func (g *gate) enter(ctx context.Context, waits func()) (tries bool, err error) {
	for first := true; ; first = false {
		g.mu.Lock()
		opened, delay := g.opened, g.delay
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
			due = g.after(g.wait(delay))
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
