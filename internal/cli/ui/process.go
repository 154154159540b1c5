// SPDX-License-Identifier: Apache-2.0

package ui

import (
	"context"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
)

// Process runs this process' command line and returns the exit code for main. SIGTERM and SIGINT cancel the context. name
// is the base name of argv[0]; version is printed by --version.
func Process(version string, run func(ctx context.Context, name string, env Env) int) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	return run(ctx, filepath.Base(os.Args[0]), ProcessEnv(version))
}

// ProcessEnv returns the environment of this process.
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
