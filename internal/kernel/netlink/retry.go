// SPDX-License-Identifier: Apache-2.0

package netlink

import (
	"context"
	"errors"
	"fmt"
)

// ErrInterrupted is wrapped when the objects changed during each attempt to read them.
var ErrInterrupted = errors.New("kernel state changed while it was read")

// Retry calls f until it neither requests another attempt nor returns an ErrInterrupted, at most so many times. The
// error then wraps the last such error.
func Retry(ctx context.Context, attempts int, f func(attempt int) (again bool, err error)) error {
	last := ErrInterrupted
	for attempt := range attempts {
		if err := ctx.Err(); err != nil {
			return err
		}
		again, err := f(attempt)
		if errors.Is(err, ErrInterrupted) {
			last = err
			continue
		}
		if err != nil || !again {
			return err
		}
	}
	return fmt.Errorf("%d attempts: %w", attempts, last)
}
