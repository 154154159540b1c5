// SPDX-License-Identifier: Apache-2.0

// Package command is the command line of weft-lab: clusters, pods and VMs on this host.
package command

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/weft-net/weft/internal/cli/ui"
)

// Run runs the command line and returns the exit code. name is the name of the program, or of the program that executes
// it.
func Run(ctx context.Context, name string, env ui.Env) int { return ui.Run(ctx, New(name, env), env) }

// New returns the root command.
func New(name string, env ui.Env) *cobra.Command {
	cmd := &cobra.Command{
		Use: name, Short: "Run clusters, pods and VMs on this host",
		Long: `Has the commands of weft that run things on this host without Kubernetes: a cluster in network namespaces (lab), pods
(sandbox) and KubeVirt VMs (vm). weft executes this program for them.`,
		Example: "  weft lab up --nodes 3 --from examples\n  weft sandbox run examples/web.yaml",
	}
	cmd.AddCommand(newLabCmd(env), newSandboxCmd(env), newVMCmd(env))
	return cmd
}
