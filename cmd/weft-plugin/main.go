// SPDX-License-Identifier: Apache-2.0

// Command weft-plugin is a CNI plugin without an agent; its name says which one.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/weft-net/weft/internal/endpoint/standalone"
)

// version is set by the linker.
var version = "dev"

func main() {
	// A call catches no signal: an end in the middle is what the journal is for, and listening takes a tenth of a call's
	// time.
	os.Exit(standalone.Main(context.Background(), standalone.Env{
		Argv0: os.Args[0], Args: os.Args[1:], Getenv: os.Getenv, Environ: os.Environ(),
		Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr, Now: time.Now, Version: version,
		Notify: func(ctx context.Context) (context.Context, context.CancelFunc) {
			return signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
		},
	}))
}
