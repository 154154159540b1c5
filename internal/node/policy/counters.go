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

// counters are the packets that policies denied, added up over tables that come and go. They have a socket of their
// own: who reads them does not wait for who writes the node's tables.
type counters struct {
	mu   sync.Mutex
	node *kernel.Conn // nil until it is needed
	// totals are denied packets by who denied them, last what the counters said last.
	totals map[string]float64
	last   map[counter]uint64
}

// counter is one of those who count: where, and what was denied by whom.
type counter struct{ where, by string }

// countTime bounds the looks into all namespaces.
const countTime = 10 * time.Second

// conn is the socket to the node's tables. The lock is held.
func (c *counters) conn() (*kernel.Conn, error) {
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

// add takes in what the counters say now. A chain that is made anew counts from nothing: what it counted before is not
// forgotten, and neither is what was counted where nobody could look this time. The lock is held.
func (c *counters) add(each map[string][]kernel.Count, unread map[string]bool) {
	now := map[counter]uint64{}
	for where, counts := range each {
		for _, one := range counts {
			if by, ok := strings.CutPrefix(one.Comment, "deny "); ok {
				now[counter{where, by}] += one.Packets // long names are cut short, and may meet
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

// Counts are the packets that policies denied on this node since their chains were made, by what the rule says.
func (e *Enforcer) Counts(ctx context.Context) ([]kernel.Count, error) {
	e.counters.mu.Lock()
	defer e.counters.mu.Unlock()
	each, _, err := e.countAll(ctx)
	var all []kernel.Count
	for _, where := range slices.Sorted(maps.Keys(each)) {
		all = append(all, each[where]...)
	}
	return all, err
}

// Denied are the packets that were denied on this node since the agent was started, by who denied them.
func (e *Enforcer) Denied() map[string]float64 {
	ctx, cancel := context.WithTimeout(context.Background(), countTime)
	defer cancel()
	e.counters.mu.Lock()
	defer e.counters.mu.Unlock()
	each, unread, err := e.countAll(ctx)
	if err != nil { // what was counted last stays: else all of it would be counted once more
		e.log.Warn("denied packets cannot be counted", "err", err)
	} else {
		e.counters.add(each, unread)
	}
	return maps.Clone(e.counters.totals)
}

// countAll are what countEach gives, read over the counters' own socket. Their lock is held.
func (e *Enforcer) countAll(ctx context.Context) (each map[string][]kernel.Count, unread map[string]bool, err error) {
	conn, err := e.counters.conn()
	if err != nil {
		return nil, nil, err
	}
	return e.pods.countEach(ctx, conn)
}
