// SPDX-License-Identifier: Apache-2.0

//go:build !weftsteps

package command

import (
	"time"

	"github.com/weft-net/weft/internal/cli/ui"
	"github.com/weft-net/weft/internal/failpoint"
)

// agentStep is the agent's fault hook: none, unless it is compiled in for tests.
func agentStep(ui.Env) failpoint.Hook { return nil }

// pluginTime leaves it at the default.
func pluginTime(ui.Env) time.Duration { return 0 }
