// SPDX-License-Identifier: Apache-2.0

package process

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/weft-net/weft/internal/flock"
)

// Lock takes the lock of a file and gives the open file: whoever inherits it, or keeps it open, holds the lock, and the
// kernel takes it back when the last of them is dead. So "who holds the lock lives" needs no process number.
func Lock(ctx context.Context, path string, patience time.Duration) (*os.File, error) {
	limited, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	f, err := flock.Open(limited, path, flock.Exclusive, 0o600)
	if errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil {
		err = fmt.Errorf("lock %s: %w", path, flock.ErrHeld)
	}
	return f, err
}

// Locked tells whether somebody holds the lock.
func Locked(path string) bool {
	return flock.Held(path)
}
