// SPDX-License-Identifier: Apache-2.0

// Package cli is weft's command line: verbs, flags, tables and JSON, exit codes. Package ui has the rules that it follows.
package cli

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/weft-net/weft/internal/cli/ui"
)

// Env is the outside world as the command line sees it; main hands it in.
type Env = ui.Env

// Run runs the command line and returns the exit code.
func Run(ctx context.Context, env Env) int { return ui.Run(ctx, newCommand(env), env) }

// newRoot is the command line as users meet it.
func newRoot(env Env) *cobra.Command {
	root := newCommand(env)
	ui.Prepare(root, env)
	return root
}

func newCommand(env Env) *cobra.Command {
	root := &cobra.Command{
		Use:   "weft",
		Short: "One network stack for Kubernetes pods and virtual machines",
	}
	root.AddCommand(newAgentCmd(env), newBenchCmd(env), newCleanCmd(env), newCNICmd(env), newConformanceCmd(env), newControllerCmd(env), newDHCPCmd(env), newDoctorCmd(env), newFlanneldCmd(env), newInstallCmd(env), newIPAMCmd(env), newLabCmd(env), newMeshCmd(env), newPolicyCmd(env), newSandboxCmd(env), newVMCmd(env), newBundleCmd(env))
	return root
}
