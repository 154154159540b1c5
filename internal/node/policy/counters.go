// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"context"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/weft-net/weft/internal/kernel"
)

// counters are the packets that policies denied, added up over deleted tables. They have their own socket, so that
// reading them does not wait for writes of the node's tables.
type counters struct {
	mu   sync.Mutex
	node *kernel.Conn // nil until the first use
	// totals are denied packets by policy; last are the counters' last values.
	totals map[string]float64
	last   map[counter]uint64
}

// counter is one counter in the kernel: its place and its policy.
type counter struct{ where, by string }

// countTime limits reading the counters in all namespaces.
const countTime = 10 * time.Second

// connLocked returns the socket for the node's tables.
func (c *counters) connLocked() (*kernel.Conn, error) {
	if c.node == nil {
		conn, err := kernel.Dial(nil)
		if err != nil {
			return nil, err
		}
		c.node = conn
	}
	return c.node, nil
}

func (c *counters) close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.node != nil {
		_ = c.node.Close()
		c.node = nil
	}
}

// addLocked adds the counters' increases. The counters of a re-created chain start at zero: earlier counts are kept,
// also those of places that could not be read this time.
func (c *counters) addLocked(each map[string][]kernel.Count, unread map[string]bool) {
	now := map[counter]uint64{}
	for where, counts := range each {
		for _, one := range counts {
			if by, ok := strings.CutPrefix(one.Comment, "deny "); ok {
				now[counter{where, by}] += one.Packets // long names are truncated, and may collide
			}
		}
	}
	for k, more := range now {
		if was := c.last[k]; was <= more {
			more -= was
		}
		c.totals[k.by] += float64(more)
	}
	for k, n := range c.last {
		if unread[k.where] {
			now[k] = n
		}
	}
	c.last = now
}

// Counts returns the packets that policies denied on this node since their chains were created, by the rule's comment.
func (e *Enforcer) Counts(ctx context.Context) ([]kernel.Count, error) {
	e.counters.mu.Lock()
	defer e.counters.mu.Unlock()
	each, _, err := e.countAllLocked(ctx)
	var all []kernel.Count
	for _, where := range slices.Sorted(maps.Keys(each)) {
		all = append(all, each[where]...)
	}
	return all, err
}

// Denied returns the packets that were denied on this node since the agent was started, by policy.
func (e *Enforcer) Denied() map[string]float64 {
	ctx, cancel := context.WithTimeout(context.Background(), countTime)
	defer cancel()
	e.counters.mu.Lock()
	defer e.counters.mu.Unlock()
	each, unread, err := e.countAllLocked(ctx)
	if err != nil { // keep the last values: otherwise all packets would be counted again
		e.log.Warn("counters of denied packets could not be read", "err", err)
	} else {
		e.counters.addLocked(each, unread)
	}
	return maps.Clone(e.counters.totals)
}

// countAllLocked returns the result of countEach, read over the counters' own socket.
func (e *Enforcer) countAllLocked(
	ctx context.Context,
) (each map[string][]kernel.Count, unread map[string]bool, err error) {
	conn, err := e.counters.connLocked()
	if err != nil {
		return nil, nil, err
	}
	return e.pods.countEach(ctx, conn)
}
