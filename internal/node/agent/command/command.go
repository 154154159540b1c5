// SPDX-License-Identifier: Apache-2.0

// Package command is the command line of weft-agent, whose commands run as root on a node.
package command

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/weft-net/weft/internal/cli/ui"
	"github.com/weft-net/weft/internal/plan/mesh"
	vm "github.com/weft-net/weft/internal/vm/command"
)

// Run runs the command line and returns the exit code. name is the name under which it is executed. further are mesh
// backends in addition to weft's own.
func Run(ctx context.Context, name string, env ui.Env, further ...mesh.Backend) int {
	return ui.Run(ctx, New(name, env, further...), env)
}

// New returns the command line.
func New(name string, env ui.Env, further ...mesh.Backend) *cobra.Command {
	vms := &cobra.Command{
		Use:   "vm",
		Short: "Build and show the network of VMs on this node",
		Long: `Applies the network of a VM to its pod in KubeVirt's two phases, and shows and reports where VMs that keep their
addresses run during a live migration. weft has further commands below vm, which run VMs.`,
		Example: "  weft vm moves\n  weft vm phase1 --netns /run/netns/pod1 examples/vm/masquerade.yaml",
		Args:    cobra.NoArgs,
	}
	vms.AddCommand(vm.NewPhase1(env), vm.NewPhase2(env), vm.NewMoves(env), vm.NewHere())
	cmd := &cobra.Command{
		Use: name, Short: "Run and maintain weft on a node",
		Long: `Has the commands of weft that run as root on a node: the agent, the daemon that replaces flanneld, the removal of
another network's rules, and the network of VMs. weft executes this program for them.`,
		Example: "  weft agent --config /etc/weft/weft.yaml\n  weft clean --from calico --dry-run",
	}
	cmd.AddCommand(newAgentCmd(env, further), newFlanneldCmd(env), newCleanCmd(env), newTunnelsCmd(env), vms)
	return cmd
}
