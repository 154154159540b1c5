// SPDX-License-Identifier: Apache-2.0

package blocks

import (
	"sync"
	"time"
)

// clock tells the time, which never goes back.
type clock struct {
	read func() time.Time

	mu   sync.Mutex
	last time.Time     // what was read last
	back time.Duration // how far it went back in all
}

func (c *clock) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	t := c.read()
	if t.Before(c.last) {
		c.back += c.last.Sub(t)
	}
	c.last = t
	return t.Add(c.back)
}
