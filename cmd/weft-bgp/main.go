// SPDX-License-Identifier: Apache-2.0

// Command weft-bgp speaks BGP for the agent of a node. It needs the right to listen on port 179, and to set passwords
// of connections.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/weft-net/weft/internal/bgp/command"
	"github.com/weft-net/weft/internal/goflag"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := exitCode(command.Run(ctx, os.Args[1:], os.Stderr, time.Now))
	stop()
	os.Exit(code)
}

// exitCode prints an error and returns the exit code: 0 for success and for help, 1 for a failure, and 2 for a usage error.
func exitCode(err error) int {
	if err == nil || errors.Is(err, flag.ErrHelp) {
		return 0
	}
	fmt.Fprintf(os.Stderr, "weft-bgp: %s\n", goflag.Message(err))
	var usage command.UsageError
	if errors.As(err, &usage) {
		return 2
	}
	return 1
}
