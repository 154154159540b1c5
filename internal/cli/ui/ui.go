// SPDX-License-Identifier: Apache-2.0

// Package ui has the conventions of the command lines of all weft programs: output, errors, exit codes, help.
//
// # Rules of the user interface
//
// Results go to stdout, everything else to stderr. Messages begin with "weft: ", in lower case, without a period. An
// error names the field and the value, and a second line, "hint: ", says how to fix it. -o json prints one JSON document
// with stable keys. Exit codes: 0 success; 1 the command failed, or what it checks is bad; 2 usage error.
package ui

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/weft-net/weft/internal/cli/complete"
	"github.com/weft-net/weft/internal/goflag"
)

// The exit codes of all commands, but CNI plugins, which have the protocol's, and exec, which has its command's.
const (
	Good   = 0 // success
	Bad    = 1 // the command failed, or what it checks is bad
	Misuse = 2 // usage error: an unknown command or flag, a missing argument, a malformed value
)

// Env is the environment of a command line, which main passes in.
type Env struct {
	Args    []string // without the program's name
	Stdin   io.Reader
	Stdout  io.Writer
	Stderr  io.Writer
	Getenv  func(string) string
	Version string
	// Self is the path of the running program, for commands that start further processes of it.
	Self string
	// Kubectl reports that kubectl executes the program as its plugin, kubectl-weft.
	Kubectl bool
	// Exec replaces the running program, as syscall.Exec does.
	Exec func(path string, argv, environ []string) error
}

// exitError is the exit code of a command that has printed its own message.
type exitError struct{ code int }

func (e exitError) Error() string { return fmt.Sprintf("exit code %d", e.code) }

// Exit returns an error that sets the exit code and prints nothing.
func Exit(code int) error { return exitError{code} }

// usageError marks usage errors.
type usageError struct{ error }

func (e usageError) Unwrap() error { return e.error }

// UsageError marks an error as a usage error; nil stays nil.
func UsageError(err error) error {
	if err == nil {
		return nil
	}
	return usageError{err}
}

// IsUsageError reports whether an error is a usage error.
func IsUsageError(err error) bool {
	var usage usageError
	return errors.As(err, &usage)
}

// Run runs a command line and returns the exit code.
func Run(ctx context.Context, root *cobra.Command, env Env) int {
	Prepare(root, env)
	root.SetArgs(env.Args)
	cmd, err := root.ExecuteContextC(ctx)
	return Code(withHint(cmd, err), env)
}

// Code prints an error, unless the command has printed it, and returns the exit code.
func Code(err error, env Env) int {
	if err == nil {
		return Good
	}
	var exit exitError
	if errors.As(err, &exit) {
		return exit.code
	}
	Warn(env.Stderr, err)
	if IsUsageError(err) {
		return Misuse
	}
	return Bad
}

// Warn prints an error, and its hint on a second line.
func Warn(w io.Writer, err error) {
	fmt.Fprintf(w, "weft: %s\n", plainPaths(goflag.Message(err), err))
}

// plainPaths removes the names of system calls from the errors of package os in a message, and a path that the message
// has anyway: "mesh.json: open mesh.json: no such file" becomes "mesh.json: no such file".
func plainPaths(msg string, err error) string {
	var p *fs.PathError
	if !errors.As(err, &p) {
		return msg
	}
	text := p.Error()
	plain := strings.TrimPrefix(text, p.Op+" ")
	before, _, found := strings.Cut(msg, text)
	if found && strings.Contains(before, p.Path) {
		plain = p.Err.Error()
	}
	return strings.Replace(msg, text, plain, 1)
}

// Prepare sets the conventions of this package on a program's root command.
func Prepare(root *cobra.Command, env Env) {
	root.SilenceErrors, root.SilenceUsage = true, true
	root.Version = env.Version
	root.SetIn(env.Stdin)
	root.SetOut(env.Stdout)
	root.SetErr(env.Stderr)
	root.SetFlagErrorFunc(flagError)
	if root.HasSubCommands() {
		root.SetHelpCommand(help())
		if groups := root.Groups(); len(groups) > 0 { // help and completion are in the last section
			root.SetHelpCommandGroupID(groups[len(groups)-1].ID)
			root.SetCompletionCommandGroupID(groups[len(groups)-1].ID)
		}
		root.InitDefaultHelpCmd()
		root.InitDefaultCompletionCmd()
	}
	strict(root)
	complete.Values(root)
}

// PrintJSON prints one JSON document.
func PrintJSON(w io.Writer, v any) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(v)
}

// ReadConf reads a network configuration from a file; - is standard input.
func ReadConf(env Env, name string) ([]byte, error) {
	const most = 1<<20 + 1 // one byte more than ParseNetwork accepts
	in := env.Stdin
	if name != "-" {
		f, err := os.Open(name)
		if err != nil {
			return nil, FileError("name a file, or - for standard input", "configuration", name, err)
		}
		defer f.Close()
		in = f
	}
	b, err := io.ReadAll(io.LimitReader(in, most))
	if err != nil {
		return nil, fmt.Errorf("configuration %s: %w", name, err)
	}
	return b, nil
}
