// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
)

// health is what keeps new pods of the node from being served, by the part that found it. It is what /readyz tells.
type health struct {
	mu      sync.Mutex
	trouble map[string]string
}

// newHealth makes the health of an agent in which nothing of this has happened yet.
func newHealth(parts ...string) *health {
	h := &health{trouble: map[string]string{}}
	for _, p := range parts {
		h.trouble[p] = "not yet done"
	}
	return h
}

// set notes how a part is; nil is well. It tells whether that is news.
func (h *health) set(part string, err error) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	was, bad := h.trouble[part]
	if err == nil {
		delete(h.trouble, part)
		return bad
	}
	h.trouble[part] = err.Error()
	return was != err.Error()
}

// ready is nil when new pods can be served.
func (h *health) ready() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.trouble) == 0 {
		return nil
	}
	var all []string
	for _, part := range slices.Sorted(maps.Keys(h.trouble)) {
		all = append(all, fmt.Sprintf("%s: %s", part, h.trouble[part]))
	}
	return errors.New(strings.Join(all, "; "))
}
