// SPDX-License-Identifier: Apache-2.0

//go:build !weftsteps

package cli

import "time"

// agentStep is the agent's fault hook: none, unless it is compiled in for tests.
func agentStep(Env) func(string) error { return nil }

// pluginTime leaves it at the default.
func pluginTime(Env) time.Duration { return 0 }
