// SPDX-License-Identifier: Apache-2.0

// Package recent keeps what was computed from a text while the text is in use: most calls of a node are about the same
// few configurations.
package recent

import "sync"

const (
	// most is the number of values in each of the two generations.
	most = 256
	// longest is the length of a key that is kept, in bytes.
	longest = 16 << 10
)

// Cache has values by texts. Its zero value is empty. It is safe for concurrent use. There are two generations: when one
// is full, a new one begins, and what was not used during the one before is dropped. So texts that only one caller has
// do not pile up, and those of all callers stay.
type Cache[V any] struct {
	mu       sync.Mutex
	now, old map[string]V
}

// Get returns the value of a text.
func (c *Cache[V]) Get(text []byte) (V, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	v, found := c.now[string(text)]
	if found {
		return v, true
	}
	if v, found = c.old[string(text)]; found {
		c.putLocked(string(text), v)
	}
	return v, found
}

// Put keeps a value, unless its text is very long.
func (c *Cache[V]) Put(text []byte, v V) {
	if len(text) > longest {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.putLocked(string(text), v)
}

func (c *Cache[V]) putLocked(text string, v V) {
	if c.now == nil || len(c.now) >= most {
		c.now, c.old = map[string]V{}, c.now
	}
	c.now[text] = v
}
