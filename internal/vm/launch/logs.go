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
	// mostLog is how long a log of a machine may be: a guest writes on its console as much as it likes, and the directory
	// may be in the node's memory. One that has become longer is begun again.
	mostLog  = 16 << 20
	logPause = 10 * time.Second
)

// boundLogs keeps the logs in the machine's directory short until stop.
func (l *launch) boundLogs(ctx context.Context, pause time.Duration, most int64) (stop func()) {
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
			l.cutLogs(most)
		}
	}()
	return func() { cancel(); <-done }
}

// cutLogs empties logs that are too long; all who write them append.
func (l *launch) cutLogs(most int64) {
	logs, _ := filepath.Glob(filepath.Join(l.Dir, "*.log"))
	for _, path := range append(logs, qemu.ConsoleLog(l.Dir)) {
		if st, err := os.Lstat(path); err != nil || !st.Mode().IsRegular() || st.Size() <= most {
			continue
		}
		if err := os.Truncate(path, 0); err != nil {
			l.Log.Warn("log of the machine is too long", "err", err)
		}
	}
}
