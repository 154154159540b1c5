// SPDX-License-Identifier: Apache-2.0

// Package agent is weft-agent as a function, for programs that are weft-agent with mesh back ends of their own (package
// backend beside this one).
package agent

import (
	"context"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"github.com/weft-net/weft/internal/agent/command"
	"github.com/weft-net/weft/internal/cli/ui"
	"github.com/weft-net/weft/pkg/backend"
)

// Run runs the command line of weft-agent, as this process was called, to its end, and returns the exit code: for main, which
// exits with it. It ends with SIGTERM and the interrupt. A program that is called flanneld takes flannel's flags. version is
// what --version says; further are back ends beside weft's own, by whose names network.encapsulation and --encapsulation
// choose them.
func Run(version string, further ...backend.Backend) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	self, err := os.Executable()
	if err != nil {
		self = os.Args[0]
	}
	name, args := filepath.Base(os.Args[0]), os.Args[1:]
	if name == "flanneld" { // in the place of flannel's program
		name, args = "weft-agent", append([]string{name}, args...)
	}
	return command.Run(ctx, name, ui.Env{
		Args: args, Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr,
		Getenv: os.Getenv, Version: version, Self: self, Exec: syscall.Exec,
	}, further...)
}
