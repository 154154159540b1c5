// SPDX-License-Identifier: Apache-2.0

package rtnl

import (
	"fmt"
	"strings"

	"golang.org/x/sys/unix"
)

// Refusal is the kernel's error for one request.
type Refusal struct {
	Index int // index in the batch
	Type  uint16
	What  string
	Errno unix.Errno
	// Hint is the kernel's own message (extended acknowledgment), which may be empty.
	Hint string
}

// Error names the request and the refusal.
func (r *Refusal) Error() string {
	if r.Hint != "" {
		return fmt.Sprintf("%s: %v (%s)", r.What, r.Errno, r.Hint)
	}
	return fmt.Sprintf("%s: %v", r.What, r.Errno)
}

// Unwrap returns the error number.
func (r *Refusal) Unwrap() error { return r.Errno }

// Refusals are the refused requests of one batch, in order.
type Refusals []*Refusal

// Error prints the first few: later ones are often their consequence.
func (r Refusals) Error() string {
	const most = 3
	var words []string
	for _, one := range r[:min(most, len(r))] {
		words = append(words, one.Error())
	}
	if len(r) > most {
		words = append(words, fmt.Sprintf("and %d more", len(r)-most))
	}
	return strings.Join(words, "; ")
}

// Unwrap returns the refusals.
func (r Refusals) Unwrap() []error {
	out := make([]error, len(r))
	for i, one := range r {
		out[i] = one
	}
	return out
}
