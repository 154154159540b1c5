// SPDX-License-Identifier: Apache-2.0

// Package command is the command line of weft-agent: what runs with root's rights on a node.
package command

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/weft-net/weft/internal/cli/ui"
	"github.com/weft-net/weft/internal/plan/mesh"
	vm "github.com/weft-net/weft/internal/vm/command"
)

// Run runs the command line and returns the exit code. name is the program's, or that of the program that executes this
// one. further are mesh back ends beside weft's own.
func Run(ctx context.Context, name string, env ui.Env, further ...mesh.Backend) int {
	return ui.Run(ctx, New(name, env, further...), env)
}

// New is the command line as users meet it.
func New(name string, env ui.Env, further ...mesh.Backend) *cobra.Command {
	machines := &cobra.Command{Use: "vm", Short: "The network of virtual machines on this node", Args: cobra.NoArgs}
	machines.AddCommand(vm.NewPhase1(env), vm.NewPhase2(env), vm.NewMoves(env), vm.NewHere())
	cmd := &cobra.Command{
		Use: name, Short: "What runs on a node: the agent, its stand-in for flannel's daemon, and their helpers",
	}
	cmd.AddCommand(newAgentCmd(env, further), newFlanneldCmd(env), newCleanCmd(env), machines)
	return cmd
}
