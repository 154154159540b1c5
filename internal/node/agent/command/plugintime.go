// SPDX-License-Identifier: Apache-2.0

//go:build weftsteps

package command

import (
	"time"

	"github.com/weft-net/weft/internal/cli/ui"
)

// pluginTime shortens the limit of a hanging plugin for tests.
func pluginTime(env ui.Env) time.Duration {
	d, _ := time.ParseDuration(env.Getenv("WEFT_PLUGIN_TIME")) // 0: the default
	return d
}
