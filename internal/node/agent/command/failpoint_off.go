// SPDX-License-Identifier: Apache-2.0

//go:build !weftsteps

package command

import (
	"time"

	"github.com/weft-net/weft/internal/cli/ui"
	"github.com/weft-net/weft/internal/failpoint"
)

// agentFailpoint returns the agent's failpoint: none, unless it is compiled in for tests.
func agentFailpoint(ui.Env) failpoint.Hook { return nil }

// pluginTime is the default.
func pluginTime(ui.Env) time.Duration { return 0 }
