// SPDX-License-Identifier: Apache-2.0

package lease

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"path/filepath"
	"time"

	"github.com/weft-net/weft/internal/boot"
	"github.com/weft-net/weft/internal/goflag"
	"github.com/weft-net/weft/internal/ipam/dhcp/exchange"
	"github.com/weft-net/weft/internal/ipam/dhcp/rpc"
	"github.com/weft-net/weft/internal/model"
)

// StateDir is the default directory of a daemon's leases.
const StateDir = "/run/weft/dhcp"

// Env is what a daemon gets from the program that it is part of.
type Env struct {
	// Name is how the daemon was called, for its usage.
	Name   string
	Getenv func(string) string
	Stderr io.Writer
	Now    func() time.Time
	Random io.Reader
}

// ErrUsage is what errors.Is finds in errors about the command line.
var ErrUsage = errors.New("usage error")

// usageError marks an error about the command line, without changing its message.
type usageError struct{ error }

func (usageError) Is(target error) bool { return target == ErrUsage }

func (e usageError) Unwrap() error { return e.error }

// misuse returns an error about the command line.
func misuse(hint, format string, args ...any) error {
	return usageError{model.Errorf(model.CodeInvalidConf, hint, format, args...)}
}

const about = `Acquires, renews and releases DHCP leases for the IPAM plugin dhcp, weft's and the reference one, until SIGTERM. The
flags are those of the reference plugin's daemon. The agent manages leases itself and needs no daemon. Leases are stored
in -statedir and renewed after a restart.`

// Command runs a daemon with the reference daemon's flags until ctx ends.
func Command(ctx context.Context, args []string, out Env) error {
	d := Daemon{Getenv: out.Getenv}
	d.Manager.Exchange = exchange.Options{Now: out.Now, Random: out.Random}
	flags := d.flags(out)
	switch err := flags.Parse(args); {
	case errors.Is(err, flag.ErrHelp):
		fmt.Fprintf(
			out.Stderr,
			"%s\n\nUsage:\n  %[2]s [flags]\n\nExamples:\n  %[2]s\n  %[2]s -pidfile /run/weft/dhcp.pid -timeout 5s\n\nFlags:\n",
			about,
			out.Name,
		)
		flags.SetOutput(out.Stderr)
		flags.PrintDefaults()
		return nil
	case err != nil:
		return usageError{goflag.Error(out.Name, flags, err)}
	case flags.NArg() > 0:
		return misuse("`"+out.Name+" --help` lists the flags", "unexpected argument %q", flags.Arg(0))
	}
	for _, l := range []struct {
		name  string
		value time.Duration
	}{
		{"timeout", d.Manager.Exchange.Timeout},
		{"resendmax", d.Manager.Exchange.ResendMax},
		{"resendtimeout", d.Manager.Exchange.ResendTimeout},
	} {
		if l.value <= 0 {
			return misuse("for example -"+l.name+" 10s", "-%s %s is not a positive duration", l.name, l.value)
		}
	}
	if d.PIDFile != "" && !filepath.IsAbs(d.PIDFile) {
		return misuse("for example -pidfile /run/weft/dhcp.pid", "-pidfile %q is not an absolute path", d.PIDFile)
	}
	var err error
	if d.Manager.Boot, err = boot.ID(); err != nil {
		return err
	}
	d.Manager.Log = slog.New(slog.NewTextHandler(out.Stderr, nil))
	return d.Run(ctx)
}

func (d *Daemon) flags(out Env) *flag.FlagSet {
	f := flag.NewFlagSet(out.Name, flag.ContinueOnError)
	f.SetOutput(io.Discard) // package flag prints errors in Go's terms
	f.StringVar(&d.PIDFile, "pidfile", "", "`FILE` to which the process ID is written, an absolute path")
	f.StringVar(
		&d.Manager.HostPrefix,
		"hostprefix",
		"",
		"`DIR` in which the host's root is mounted: a prefix of the socket's and namespaces' paths",
	)
	f.StringVar(&d.Socket, "socketpath", rpc.DefaultSocket, "`PATH` of the socket on which plugins call the daemon")
	f.BoolVar(&d.Manager.Broadcast, "broadcast", false, "request that servers broadcast their responses")
	f.DurationVar(
		&d.Manager.Exchange.Timeout,
		"timeout",
		exchange.Timeout,
		"`DURATION` to wait for the response to a message",
	)
	f.DurationVar(&d.Manager.Exchange.ResendMax, "resendmax", exchange.ResendMax,
		"longest `DURATION` between two transmissions of a message")
	f.DurationVar(
		&d.Manager.Exchange.ResendTimeout,
		"resendtimeout",
		exchange.ResendTimeout,
		"`DURATION` after which the request for a lease fails",
	)
	f.StringVar(&d.Manager.Dir, "statedir", StateDir,
		"`DIR` of the leases; use a file system that a reboot clears")
	return f
}
