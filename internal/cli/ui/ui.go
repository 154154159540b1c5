// SPDX-License-Identifier: Apache-2.0

// Package ui is what the command lines of weft's programs have in common.
//
// # Rules of the user interface
//
// Results go to stdout, everything else to stderr. Messages begin with "weft: ", in lower case, without a full stop at
// the end. An error says what is wrong with field and value, and on a second line, "hint: ", the way out. -o json
// prints one JSON document with stable keys. Exit codes: 0 done, and the answer is good; 1 it failed, or the answer is
// bad; 2 the question is bad.
package ui

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/weft-net/weft/internal/model"
)

// The exit codes of every command. CNI programs keep the protocol's, exec its command's.
const (
	Good   = 0 // it is done, or the answer is good
	Bad    = 1 // it failed, or the answer is bad
	Misuse = 2 // the question is bad: an unknown command or flag, a missing argument, a malformed value
)

// Env is the outside world as a command line sees it; main hands it in.
type Env struct {
	Args    []string // without the program's name
	Stdin   io.Reader
	Stdout  io.Writer
	Stderr  io.Writer
	Getenv  func(string) string
	Version string
	// Self is the path of the running program, for verbs that start further processes of it.
	Self string
	// Exec replaces the running program, as syscall.Exec does.
	Exec func(path string, argv, environ []string) error
}

// exitError is the exit code of a command that has said what there is to say.
type exitError struct{ code int }

func (e exitError) Error() string { return fmt.Sprintf("exit code %d", e.code) }

// Exit is the error of a command that has said what there is to say and ends with an exit code.
func Exit(code int) error { return exitError{code} }

// usageError is an error of the command line itself.
type usageError struct{ error }

func (e usageError) Unwrap() error { return e.error }

// UsageError makes an error one of the command line itself; nil stays nil.
func UsageError(err error) error {
	if err == nil {
		return nil
	}
	return usageError{err}
}

// IsUsageError reports whether an error is one of the command line itself.
func IsUsageError(err error) bool {
	var usage usageError
	return errors.As(err, &usage)
}

// Run runs a command line to its end and returns the exit code. The command becomes strict about its arguments.
func Run(ctx context.Context, root *cobra.Command, env Env) int {
	Prepare(root, env)
	root.SetArgs(env.Args)
	return Code(root.ExecuteContext(ctx), env)
}

// Code says what went wrong, unless the command has said it, and gives the exit code.
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
	msg := err.Error()
	var fault *model.Fault
	if errors.As(err, &fault) && fault.Hint != "" {
		fmt.Fprintf(w, "weft: %s\nhint: %s\n", strings.TrimSuffix(msg, " ("+fault.Hint+")"), fault.Hint)
		return
	}
	fmt.Fprintf(w, "weft: %s\n", msg)
}

// Prepare gives a program's command the manners that all of them have.
func Prepare(root *cobra.Command, env Env) {
	root.SilenceErrors, root.SilenceUsage = true, true
	root.Version = env.Version
	root.SetIn(env.Stdin)
	root.SetOut(env.Stdout)
	root.SetErr(env.Stderr)
	root.SetFlagErrorFunc(flagError)
	if root.HasSubCommands() {
		root.SetHelpCommand(help())
		root.InitDefaultHelpCmd()
		root.InitDefaultCompletionCmd()
	}
	strict(root)
}

// PrintJSON prints one document.
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
			return nil, model.Faultf(model.CodeIO, "name a file, or - for standard input", "configuration: %w", err)
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
