// SPDX-License-Identifier: Apache-2.0

// Package cli is the command line weft: commands, flags, tables, JSON and exit codes, and the list of commands that other
// programs implement. Package ui has the rules for all command lines.
package cli

import (
	"context"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/weft-net/weft/internal/cli/observe"
	"github.com/weft-net/weft/internal/cli/ui"
	"github.com/weft-net/weft/internal/cli/version"
)

// Env is the environment of the command line, which main passes in.
type Env = ui.Env

// Run runs the command line and returns the exit code.
func Run(ctx context.Context, env Env) int {
	return ui.Run(ctx, newCommand(env), env)
}

// ExecExternal executes the program that implements the command. It returns with external false if the command is weft's
// own, and with true and the exit code if the program cannot be executed.
func ExecExternal(env Env) (code int, external bool) {
	program, argv, ok := externalFor(env.Args)
	if !ok {
		return 0, false
	}
	return ui.Code(execProgram(env, program, argv), env), true
}

// newRoot returns the command tree as it runs.
func newRoot(env Env) *cobra.Command {
	root := newCommand(env)
	ui.Prepare(root, env)
	return root
}

func newCommand(env Env) *cobra.Command {
	root := &cobra.Command{
		Use:   "weft",
		Short: "Network stack for Kubernetes pods and VMs",
		Long: `weft attaches pods and VMs to networks through CNI, keeps the routes and tunnels between nodes, allocates addresses
from pools, and enforces network policies. On a node, weft agent does this, and the other commands query, check and
change it. weft lab runs a whole cluster in network namespaces of this host.

Results are printed on stdout, everything else on stderr. The exit code is 0 for success, 1 if the command failed or
what it checks is bad, and 2 for a usage error.`,
		Example: "  weft doctor\n  weft policy why shop/web shop/db:5432\n  weft lab up --nodes 3 --from examples",
	}
	root.AddCommand(newCNICmd(env), newDHCPCmd(env), newDoctorCmd(env), newInstallCmd(env), newIPAMCmd(env),
		newMeshCmd(env), newBGPCmd(env), newPolicyCmd(env), newBundleCmd(env), newRelayCmd(env), newExplainCmd(env), newStatusCmd(env),
		newTraceCmd(env), newUICmd(env), observe.NewCmd(env, explainFlow), newConnectivityTestCmd(env), version.NewCmd(env))
	addExternals(root, env)
	for _, g := range commandGroups() {
		root.AddGroup(&cobra.Group{ID: g.title, Title: g.title + " Commands:"})
		for _, c := range root.Commands() {
			if slices.Contains(g.commands, c.Name()) {
				c.GroupID = g.title
			}
		}
	}
	if env.Kubectl {
		root.Annotations = map[string]string{cobra.CommandDisplayNameAnnotation: "kubectl weft"}
		asPlugin(root)
	}
	return root
}

// asPlugin rewrites the examples of a command and those below it for kubectl's plugin.
func asPlugin(cmd *cobra.Command) {
	lines := strings.Split(cmd.Example, "\n")
	for i, line := range lines {
		if command, is := strings.CutPrefix(line, "  weft "); is {
			lines[i] = "  kubectl weft " + command
		}
	}
	cmd.Example = strings.Join(lines, "\n")
	for _, c := range cmd.Commands() {
		asPlugin(c)
	}
}

// commandGroup is a section of weft --help and of docs/reference/commands.md.
type commandGroup struct {
	title    string
	commands []string
}

// commandGroups returns the sections, in order. Help and completion are in the last one.
func commandGroups() []commandGroup {
	return []commandGroup{
		{"Cluster", []string{"bgp", "cluster", "connectivity-test", "controller", "docker", "explain", "ipam", "mesh", "observe", "policy", "status",
			"trace", "ui", "version"}},
		{"Node", []string{"agent", "clean", "doctor", "flanneld", "install", "support-bundle"}},
		{"Pod", []string{"cni", "dhcp", "sandbox"}},
		{"VM", []string{"vm"}},
		{"Lab", []string{"lab"}},
		{"Developer", []string{"bench", "conformance"}},
	}
}
