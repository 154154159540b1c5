// SPDX-License-Identifier: Apache-2.0

// Package loglevel applies the log level of the agent's configuration file while the agent runs.
package loglevel

import (
	"context"
	"log/slog"
	"time"

	"github.com/weft-net/weft/internal/cluster/config"
)

// period is how often the configuration file is read for the log level. A mounted ConfigMap takes a minute to change
// anyway.
const period = 10 * time.Second

// Follow sets the log level when it changes in the configuration file, until ctx ends. A level that was set at run
// time by other means stays until the file changes.
func Follow(
	ctx context.Context, path string, level *slog.LevelVar, log *slog.Logger, after func(time.Duration) <-chan time.Time,
) error {
	last := level.Level()
	trouble := ""
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-after(period):
		}
		c, err := config.Load(path)
		if err != nil {
			if err.Error() != trouble {
				trouble = err.Error()
				log.Warn("configuration is invalid, and the next start of the agent would fail", "err", err)
			}
			continue
		}
		trouble = ""
		if c.LogLevel != last {
			log.Info("log level changed", "old", level.Level().String(), "new", c.LogLevel.String(), "path", path)
			level.Set(c.LogLevel)
			last = c.LogLevel
		}
	}
}
