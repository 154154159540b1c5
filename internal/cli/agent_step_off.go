// SPDX-License-Identifier: Apache-2.0

//go:build !weftsteps

package cli

// agentStep is the agent's fault hook: none, unless it is compiled in for tests.
func agentStep(Env) func(string) error { return nil }
