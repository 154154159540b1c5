// SPDX-License-Identifier: Apache-2.0

// Command weft-lab runs clusters, pods and virtual machines on this machine. weft executes it.
package main

import (
	"context"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"github.com/weft-net/weft/internal/cli/ui"
	"github.com/weft-net/weft/internal/lab/command"
)

// version is set by the linker.
var version = "dev"

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	self, err := os.Executable()
	if err != nil {
		self = os.Args[0]
	}
	name := filepath.Base(os.Args[0])
	code := command.Run(ctx, name, ui.Env{
		Args: os.Args[1:], Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr,
		Getenv: os.Getenv, Version: version, Self: self, Exec: syscall.Exec,
	})
	stop()
	os.Exit(code)
}
