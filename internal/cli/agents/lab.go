// SPDX-License-Identifier: Apache-2.0

package agents

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"time"
)

// downPeriod is how often AwaitDown reads the directory.
const downPeriod = time.Second

// AwaitDown waits until the lab is down. The error is that of ctx, if that ends before; another cluster is never down.
func (c Cluster) AwaitDown(ctx context.Context) error {
	if c.Dir == "" {
		<-ctx.Done()
		return ctx.Err()
	}
	ticks := time.NewTicker(downPeriod)
	defer ticks.Stop()
	for {
		if _, err := os.Stat(filepath.Join(c.Dir, marker)); errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-ticks.C:
		}
	}
}
