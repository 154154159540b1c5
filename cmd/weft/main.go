// SPDX-License-Identifier: Apache-2.0

// Command weft is the operator's command line. What other programs are it becomes: weft agent is the program weft-agent beside it.
package main

import (
	"context"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"github.com/weft-net/weft/internal/cli"
)

// version is set by the linker.
var version = "dev"

func main() {
	self, err := os.Executable()
	if err != nil {
		self = os.Args[0]
	}
	args := os.Args[1:]
	if filepath.Base(os.Args[0]) == "flanneld" { // in the place of flannel's program
		args = append([]string{"flanneld"}, args...)
	}
	env := cli.Env{
		Args: args, Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr,
		Getenv: os.Getenv, Version: version, Self: self, Exec: syscall.Exec,
	}
	if code, handed := cli.HandOn(env); handed { // before signals are caught: one that came between would be lost
		os.Exit(code)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := cli.Run(ctx, env)
	stop()
	os.Exit(code)
}
