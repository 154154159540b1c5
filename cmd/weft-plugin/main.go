// SPDX-License-Identifier: Apache-2.0

// Command weft-plugin is a CNI plugin without an agent; its name says which one.
package main

import (
	"context"
	"os"
	"syscall"
	"time"

	"github.com/weft-net/weft/internal/standalone"
)

// version is set by the linker.
var version = "dev"

func main() {
	deepen(len(os.Args))
	// No signal is caught: an end in the middle is what the journal is for, and listening takes a tenth of a call's time.
	os.Exit(standalone.Main(context.Background(), standalone.Env{
		Argv0: os.Args[0], Args: os.Args[1:], Getenv: os.Getenv, Environ: os.Environ(),
		Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr, Now: time.Now, Version: version, Exec: syscall.Exec,
	}))
}

// deepen has the stack of main grown to 64 KiB while there is little on it to move. Else it would double three times, each
// time deep inside a call: a twentieth of its time, most of it page faults (old stacks, and the symbol table to move them).
//
//go:noinline
func deepen(args int) {
	if args < 0 { // never: what counts is the size of the frame
		var room [33 << 10]byte
		_, _ = os.Stdin.Read(room[:])
	}
}
