// SPDX-License-Identifier: Apache-2.0

// Command weft-guest runs next to a hypervisor and serves DHCP, DHCPv6 and router advertisements to its guest. It receives
// its configuration and its sockets over a unix socket from the process that set up the pod's network, again after a
// restart of either process and when they change. It needs no capabilities of its own.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/weft-net/weft/internal/goflag"
	"github.com/weft-net/weft/internal/guest/serve"
	"github.com/weft-net/weft/internal/guest/session"
	"github.com/weft-net/weft/internal/model"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := exitCode(run(ctx, os.Args[1:], os.Stderr), os.Stderr)
	stop()
	os.Exit(code)
}

// usageError is an error of the command line.
type usageError struct{ error }

func (e usageError) Unwrap() error { return e.error }

// exitCode prints an error and returns the exit code: 0 for success and for help, 1 for a failure, and 2 for a usage error.
func exitCode(err error, stderr io.Writer) int {
	if err == nil || errors.Is(err, flag.ErrHelp) {
		return 0
	}
	fmt.Fprintf(stderr, "weft-guest: %s\n", goflag.Message(err))
	var usage usageError
	if errors.As(err, &usage) {
		return 2
	}
	return 1
}

const help = `Serves DHCP, DHCPv6 and router advertisements to the guest of a VM, until SIGTERM. It runs next to the hypervisor, without
capabilities, and receives its configuration and its sockets from the agent, or from weft vm phase2.

Usage:
  weft-guest [flags]

Examples:
  weft-guest
  weft-guest -socket /run/weft/guest.sock -dhcp-started-dir /var/run/kubevirt-private

Flags:
`

func run(ctx context.Context, args []string, stderr io.Writer) error {
	flags := flag.NewFlagSet("weft-guest", flag.ContinueOnError)
	flags.SetOutput(io.Discard) // package flag prints errors in Go's terms
	socket := flags.String("socket", "@weft-guest",
		"`PATH` of the unix socket from which weft-guest receives its sockets; @NAME is an abstract one of the network namespace")
	started := flags.String("dhcp-started-dir", "",
		"`DIR` for the marker files that DHCP is served, as KubeVirt writes them, in /var/run/kubevirt-private (default: none)")
	switch err := flags.Parse(args); {
	case errors.Is(err, flag.ErrHelp):
		fmt.Fprint(stderr, help)
		flags.SetOutput(stderr)
		flags.PrintDefaults()
		return err
	case err != nil:
		return usageError{goflag.Error("weft-guest", flags, err)}
	case flags.NArg() > 0:
		return usageError{model.Errorf(model.CodeInvalidConf, "`weft-guest --help` lists the flags",
			"unexpected argument %q", flags.Arg(0))}
	}
	log := slog.New(slog.NewTextHandler(stderr, nil))
	return session.Config{
		Socket: *socket, Serve: serve.Config{StartedDir: *started, Log: log}, Log: log, After: time.After,
	}.Run(ctx)
}
