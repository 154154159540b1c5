// SPDX-License-Identifier: Apache-2.0

// Command weft is the node agent, the lab and the command line.
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
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	self, err := os.Executable()
	if err != nil {
		self = os.Args[0]
	}
	args := os.Args[1:]
	if filepath.Base(os.Args[0]) == "flanneld" { // in the place of flannel's program
		args = append([]string{"flanneld"}, args...)
	}
	code := cli.Run(ctx, cli.Env{
		Args: args, Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr,
		Getenv: os.Getenv, Version: version, Self: self, Exec: syscall.Exec,
	})
	stop()
	os.Exit(code)
}
