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

// Lock locks a file and returns it. Child processes that inherit the open file share the lock, and the kernel releases it
// when the last of them exits. So Locked reports whether such a process runs, without knowing its PID.
func Lock(ctx context.Context, path string, timeout time.Duration) (*os.File, error) {
	limited, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	f, err := flock.Open(limited, path, flock.Exclusive, 0o600)
	if errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil {
		err = fmt.Errorf("lock %s: %w", path, flock.ErrHeld)
	}
	return f, err
}

// Locked reports whether a process has locked the file.
func Locked(path string) bool {
	return flock.Held(path)
}
