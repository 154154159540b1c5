// SPDX-License-Identifier: Apache-2.0

// Package cli is weft's command line: verbs, flags, tables and JSON, exit codes.
//
// # Rules of the user interface
//
// Results go to stdout, everything else to stderr. Messages begin with "weft: ", in lower case, without a full stop at
// the end. An error says what is wrong with field and value, and on a second line, "hint: ", the way out. -o json prints
// one JSON document with stable keys. Exit codes: 0 done, and the answer is good; 1 it failed, or the answer is bad; 2 the
// question is bad.
package cli

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/weft-net/weft/internal/model"
)

// Env is the outside world as the command line sees it; main hands it in.
type Env struct {
	Args    []string // without the program's name
	Stdin   io.Reader
	Stdout  io.Writer
	Stderr  io.Writer
	Getenv  func(string) string
	Version string
	// Self is the path of the running program, for verbs that start further processes of it.
	Self string
}

// exitError is the exit code of a command that weft ran for the user; the command has said what there is to say.
type exitError struct{ code int }

func (e exitError) Error() string { return fmt.Sprintf("exit code %d", e.code) }

// Run runs the command line and returns the exit code.
func Run(ctx context.Context, env Env) int {
	root := newRoot(env)
	root.SetArgs(env.Args)
	err := root.ExecuteContext(ctx)
	if err == nil {
		return exitGood
	}
	var exit exitError
	if errors.As(err, &exit) {
		return exit.code
	}
	msg := err.Error()
	var fault *model.Fault
	if errors.As(err, &fault) && fault.Hint != "" {
		fmt.Fprintf(env.Stderr, "weft: %s\nhint: %s\n", trimHint(msg, fault.Hint), fault.Hint)
	} else {
		fmt.Fprintf(env.Stderr, "weft: %s\n", msg)
	}
	var usage usageError
	if errors.As(err, &usage) {
		return exitUsage
	}
	return exitBad
}

func trimHint(msg, hint string) string {
	suffix := " (" + hint + ")"
	if len(msg) > len(suffix) && msg[len(msg)-len(suffix):] == suffix {
		return msg[:len(msg)-len(suffix)]
	}
	return msg
}

func newRoot(env Env) *cobra.Command {
	root := &cobra.Command{
		Use:           "weft",
		Short:         "One network stack for Kubernetes pods and virtual machines",
		SilenceErrors: true,
		SilenceUsage:  true,
		Version:       env.Version,
	}
	root.SetIn(env.Stdin)
	root.SetOut(env.Stdout)
	root.SetErr(env.Stderr)
	root.SetFlagErrorFunc(flagError)
	root.AddCommand(newAgentCmd(env), newBenchCmd(env), newCleanCmd(env), newCNICmd(env), newConformanceCmd(env), newControllerCmd(env), newDHCPCmd(env), newDoctorCmd(env), newFlanneldCmd(env), newInstallCmd(env), newIPAMCmd(env), newLabCmd(env), newMeshCmd(env), newPolicyCmd(env), newSandboxCmd(env), newVMCmd(env), newBundleCmd(env))
	root.SetHelpCommand(help())
	root.InitDefaultHelpCmd()
	root.InitDefaultCompletionCmd()
	strict(root)
	return root
}
