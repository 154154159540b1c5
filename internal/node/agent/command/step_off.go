// SPDX-License-Identifier: Apache-2.0

//go:build !weftsteps

package command

import (
	"time"

	"github.com/weft-net/weft/internal/cli/ui"
)

// agentStep is the agent's fault hook: none, unless it is compiled in for tests.
func agentStep(ui.Env) func(string) error { return nil }

// pluginTime leaves it at the default.
func pluginTime(ui.Env) time.Duration { return 0 }
