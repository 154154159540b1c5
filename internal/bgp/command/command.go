// SPDX-License-Identifier: Apache-2.0

// Package command is the command line of weft-bgp.
package command

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"runtime/debug"
	"time"

	"github.com/weft-net/weft/internal/bgp/server"
	"github.com/weft-net/weft/internal/bgp/speaker"
	"github.com/weft-net/weft/internal/goflag"
	"github.com/weft-net/weft/internal/model"
)

// softLimit is the soft memory limit of Go's garbage collector, in bytes: peers may announce 100,000 routes each.
const softLimit = 256 << 20

const help = `Speaks BGP for the node's agent, until SIGTERM. It receives its whole configuration from the agent over a unix socket,
and reports the routes that it learns; the agent changes the kernel's routes. When it ends, peers keep the node's
routes for the restart time.

Usage:
  weft-bgp [flags]

Examples:
  weft-bgp
  weft-bgp -socket /run/weft/bgp.sock -log-level debug

Flags:
`

// UsageError is an error of the command line.
type UsageError struct{ error }

// Unwrap returns the error.
func (e UsageError) Unwrap() error { return e.error }

// Run runs the command line until ctx ends.
func Run(ctx context.Context, args []string, stderr io.Writer, now func() time.Time) error {
	flags := flag.NewFlagSet("weft-bgp", flag.ContinueOnError)
	flags.SetOutput(io.Discard) // package flag prints errors in Go's terms
	socket := flags.String("socket", "/run/weft/bgp.sock", "`PATH` of the unix socket to which the agent connects")
	level := flags.String("log-level", "info", "lowest `LEVEL` that is logged: debug, info, warn or error")
	var lowest slog.Level
	switch err := flags.Parse(args); {
	case errors.Is(err, flag.ErrHelp):
		fmt.Fprint(stderr, help)
		flags.SetOutput(stderr)
		flags.PrintDefaults()
		return err
	case err != nil:
		return UsageError{goflag.Error("weft-bgp", flags, err)}
	case flags.NArg() > 0:
		return UsageError{model.Errorf(model.CodeInvalidConf, "`weft-bgp --help` lists the flags",
			"unexpected argument %q", flags.Arg(0))}
	case lowest.UnmarshalText([]byte(*level)) != nil:
		return UsageError{model.Errorf(model.CodeInvalidConf, "write debug, info, warn or error",
			"log level %q is not known", *level)}
	}
	debug.SetMemoryLimit(softLimit)
	log := slog.New(slog.NewTextHandler(stderr, &slog.HandlerOptions{Level: lowest}))
	s := speaker.New(log, now)
	go s.Run(ctx)
	return server.New(*socket, s, log, time.After).Run(ctx)
}
