// SPDX-License-Identifier: Apache-2.0

// Command weft-agent is what runs with root's rights on a node: the agent, its stand-in for flannel's daemon, and their helpers. As
// flanneld it takes flannel's flags.
package main

import (
	"context"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"github.com/weft-net/weft/internal/agent/command"
	"github.com/weft-net/weft/internal/cli/ui"
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
	args := os.Args[1:]
	if name == "flanneld" { // in the place of flannel's program
		name, args = "weft-agent", append([]string{name}, args...)
	}
	code := command.Run(ctx, name, ui.Env{
		Args: args, Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr,
		Getenv: os.Getenv, Version: version, Self: self, Exec: syscall.Exec,
	})
	stop()
	os.Exit(code)
}
