// SPDX-License-Identifier: Apache-2.0

//go:build !weftsteps

package command

import (
	"time"

	"github.com/weft-net/weft/internal/cli/ui"
)

// pluginTime is the default.
func pluginTime(ui.Env) time.Duration { return 0 }
