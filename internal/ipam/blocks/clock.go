// SPDX-License-Identifier: Apache-2.0

package blocks

import (
	"sync"
	"time"
)

// clock is monotonic, also if the system's time is set back.
type clock struct {
	read func() time.Time

	mu   sync.Mutex
	last time.Time     // the last reading
	back time.Duration // the sum of all steps back
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
