// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"time"

	"github.com/weft-net/weft/internal/cluster/config"
)

// levelPeriod is how often the configuration file is read for the log's level. A mounted ConfigMap takes a minute to come
// anyway.
const levelPeriod = 10 * time.Second

// followLevel sets the log's level when it changes in the configuration file, until ctx ends. A level that was set at run
// time by other means stays until the file says something new.
func (a *agent) followLevel(ctx context.Context) error {
	last := a.cfg.Level.Level()
	trouble := ""
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-a.cfg.After(levelPeriod):
		}
		c, err := config.Load(a.cfg.File)
		if err != nil {
			if err.Error() != trouble {
				trouble = err.Error()
				a.cfg.Log.Warn("configuration is not as it was, the next start will fail", "err", err)
			}
			continue
		}
		trouble = ""
		if c.LogLevel != last {
			a.cfg.Log.Info("log level changed", "was", a.cfg.Level.Level().String(), "is", c.LogLevel.String(), "by", a.cfg.File)
			a.cfg.Level.Set(c.LogLevel)
			last = c.LogLevel
		}
	}
}
