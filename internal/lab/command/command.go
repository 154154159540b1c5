// SPDX-License-Identifier: Apache-2.0

// Package command is the command line of weft-lab: clusters, pods and machines on this machine.
package command

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/weft-net/weft/internal/cli/ui"
)

// Run runs the command line and returns the exit code. name is the program's, or that of the program that executes this
// one.
func Run(ctx context.Context, name string, env ui.Env) int { return ui.Run(ctx, New(name, env), env) }

// New is the command line as users meet it.
func New(name string, env ui.Env) *cobra.Command {
	cmd := &cobra.Command{Use: name, Short: "Clusters, pods and virtual machines on this machine"}
	cmd.AddCommand(newLabCmd(env), newSandboxCmd(env), newVMCmd(env))
	return cmd
}
