// SPDX-License-Identifier: Apache-2.0

// Command weft-guest runs beside a hypervisor and speaks to its guests: DHCP, DHCPv6, router advertisements. It gets
// what it says, and the sockets by which it says it, over a unix socket from whoever made the pod's network; it can be
// started again at any time, and gets them again, as it does when they change or when who gives them has been started
// again. It needs no rights of its own.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/weft-net/weft/internal/guest/serve"
	"github.com/weft-net/weft/internal/guest/session"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stderr)
	stop()
	if err != nil {
		fmt.Fprintf(os.Stderr, "weft-guest: %v\n", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, stderr io.Writer) error {
	flags := flag.NewFlagSet("weft-guest", flag.ContinueOnError)
	flags.SetOutput(stderr)
	socket := flags.String("socket", "@weft-guest",
		"`PATH` of the unix socket by which sockets and words come; @NAME is one of the network namespace")
	started := flags.String("dhcp-started-dir", "",
		"`DIR` where it is noted that DHCP is served, as KubeVirt does (/var/run/kubevirt-private)")
	if err := flags.Parse(args); err != nil {
		return err
	}
	log := slog.New(slog.NewTextHandler(stderr, nil))
	return session.Config{
		Socket: *socket, Serve: serve.Config{StartedDir: *started, Log: log}, Log: log, After: time.After,
	}.Run(ctx)
}
