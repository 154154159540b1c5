// SPDX-License-Identifier: Apache-2.0

// Package cli is the operator's command line: verbs, flags, tables and JSON, exit codes, and which program each other
// command of weft is. Package ui has the rules that all of them follow.
package cli

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/weft-net/weft/internal/cli/ui"
)

// Env is the outside world as the command line sees it; main hands it in.
type Env = ui.Env

// Run runs the command line and returns the exit code.
func Run(ctx context.Context, env Env) int {
	return ui.Run(ctx, newCommand(env), env)
}

// HandOn becomes the program that the command line is handed to, if it is: then it returns only when that cannot be.
func HandOn(env Env) (code int, handed bool) {
	program, argv, ok := handOn(env.Args)
	if !ok {
		return 0, false
	}
	return ui.Code(become(env, program, argv), env), true
}

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
	root.AddCommand(newCNICmd(env), newDHCPCmd(env), newDoctorCmd(env), newInstallCmd(env), newIPAMCmd(env),
		newMeshCmd(env), newPolicyCmd(env), newBundleCmd(env))
	addHanded(root, env)
	return root
}
