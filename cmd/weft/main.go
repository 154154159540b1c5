// SPDX-License-Identifier: Apache-2.0

// Command weft is the node agent, the lab and the command line.
package main

import (
	"context"
	"os"
	"os/signal"
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
	code := cli.Run(ctx, cli.Env{
		Args: os.Args[1:], Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr,
		Getenv: os.Getenv, Version: version, Self: self,
	})
	stop()
	os.Exit(code)
}
