// SPDX-License-Identifier: Apache-2.0

// Command weft-plugin is a CNI plugin without an agent; its name says which one.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/weft-net/weft/internal/standalone"
)

// version is set by the linker.
var version = "dev"

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := standalone.Main(ctx, standalone.Env{
		Argv0: os.Args[0], Args: os.Args[1:], Getenv: os.Getenv, Environ: os.Environ(),
		Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr, Now: time.Now, Version: version, Exec: syscall.Exec,
	})
	stop()
	os.Exit(code)
}
