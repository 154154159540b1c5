// SPDX-License-Identifier: Apache-2.0

package ui

import (
	"context"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
)

// Process runs a command line as this process was called, to its end, and returns the exit code, with which main exits.
// Its context ends with SIGTERM and the interrupt. name is what the process was called by, version what --version says.
func Process(version string, run func(ctx context.Context, name string, env Env) int) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	return run(ctx, filepath.Base(os.Args[0]), ProcessEnv(version))
}

// ProcessEnv is the outside world of this process.
func ProcessEnv(version string) Env {
	self, err := os.Executable()
	if err != nil {
		self = os.Args[0]
	}
	return Env{
		Args: os.Args[1:], Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr,
		Getenv: os.Getenv, Version: version, Self: self, Exec: syscall.Exec,
	}
}
