// SPDX-License-Identifier: Apache-2.0

package launch

import (
	"context"
	"os"
	"path/filepath"
	"time"

	"github.com/weft-net/weft/internal/vm/qemu"
)

const (
	// maxLogSize is the maximum size of a log: a guest may flood its console, and the directory may be a tmpfs. A
	// longer log is truncated.
	maxLogSize  = 16 << 20
	logInterval = 10 * time.Second
)

// limitLogs limits the size of the logs in the VM's directory until stop.
func (l *launch) limitLogs(ctx context.Context, pause time.Duration, maxSize int64) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			select {
			case <-ctx.Done():
				return
			case <-time.After(pause):
			}
			l.truncateLogs(maxSize)
		}
	}()
	return func() { cancel(); <-done }
}

// truncateLogs truncates logs that are too long; all writers append.
func (l *launch) truncateLogs(maxSize int64) {
	logs, _ := filepath.Glob(filepath.Join(l.Dir, "*.log"))
	for _, path := range append(logs, qemu.ConsoleLog(l.Dir)) {
		if st, err := os.Lstat(path); err != nil || !st.Mode().IsRegular() || st.Size() <= maxSize {
			continue
		}
		if err := os.Truncate(path, 0); err != nil {
			l.Log.Warn("log of the VM cannot be truncated", "vm", l.key, "err", err)
		}
	}
}
