// SPDX-License-Identifier: Apache-2.0

// Package command is the command line of weft-agent: what runs with root's rights on a node.
package command

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/weft-net/weft/internal/cli/ui"
	vm "github.com/weft-net/weft/internal/vm/command"
)

// Run runs the command line and returns the exit code. name is the program's, or that of the program that executes this one.
func Run(ctx context.Context, name string, env ui.Env) int { return ui.Run(ctx, New(name, env), env) }

// New is the command line as users meet it.
func New(name string, env ui.Env) *cobra.Command {
	machines := &cobra.Command{Use: "vm", Short: "The network of virtual machines on this node", Args: cobra.NoArgs}
	machines.AddCommand(vm.NewPhase1(env), vm.NewPhase2(env), vm.NewMoves(env), vm.NewHere())
	cmd := &cobra.Command{Use: name, Short: "What runs on a node: the agent, its stand-in for flannel's daemon, and their helpers"}
	cmd.AddCommand(newAgentCmd(env), newFlanneldCmd(env), newCleanCmd(env), machines)
	return cmd
}
