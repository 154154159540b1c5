// SPDX-License-Identifier: Apache-2.0

// Package readiness collects the reasons why a node cannot serve new pods, by the component that found them.
package readiness

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
)

// Readiness is what /readyz reports.
type Readiness struct {
	mu       sync.Mutex
	failures map[string]string
}

// New returns the readiness of a node whose components have not reported yet.
func New(components ...string) *Readiness {
	h := &Readiness{failures: map[string]string{}}
	for _, p := range components {
		h.failures[p] = "not yet done"
	}
	return h
}

// Set sets the state of a component; nil is ready. It reports whether the state changed.
func (h *Readiness) Set(component string, err error) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	was, bad := h.failures[component]
	if err == nil {
		delete(h.failures, component)
		return bad
	}
	h.failures[component] = err.Error()
	return was != err.Error()
}

// Err returns nil if new pods can be served.
func (h *Readiness) Err() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.failures) == 0 {
		return nil
	}
	var all []string
	for _, component := range slices.Sorted(maps.Keys(h.failures)) {
		all = append(all, fmt.Sprintf("%s: %s", component, h.failures[component]))
	}
	return errors.New(strings.Join(all, "; "))
}

// Of returns why a component is not ready, nil if it is.
func (h *Readiness) Of(component string) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if why, bad := h.failures[component]; bad {
		return errors.New(why)
	}
	return nil
}
