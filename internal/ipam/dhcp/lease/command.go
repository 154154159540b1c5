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
	"github.com/weft-net/weft/internal/ipam/dhcp/exchange"
	"github.com/weft-net/weft/internal/ipam/dhcp/rpc"
	"github.com/weft-net/weft/internal/model"
)

// StateDir is where a daemon keeps its leases unless it is told otherwise.
const StateDir = "/run/weft/dhcp"

// Outside is what a daemon gets from the program that it is part of.
type Outside struct {
	// Name is how the daemon was called, for its usage.
	Name   string
	Getenv func(string) string
	Stderr io.Writer
	Now    func() time.Time
	Random io.Reader
}

// ErrUsage is wrapped by errors about the command line.
var ErrUsage = errors.New("wrong usage")

// Command runs a daemon with the reference daemon's flags until ctx ends.
func Command(ctx context.Context, args []string, out Outside) error {
	d := Daemon{Getenv: out.Getenv}
	d.Keeper.World = exchange.World{Now: out.Now, Random: out.Random}
	flags := d.flags(out)
	if err := flags.Parse(args); errors.Is(err, flag.ErrHelp) {
		return nil
	} else if err != nil {
		return fmt.Errorf("%w: %w", ErrUsage, err)
	}
	if flags.NArg() > 0 {
		return fmt.Errorf("%w: argument %q is not understood", ErrUsage, flags.Arg(0))
	}
	for _, l := range []struct {
		name  string
		value time.Duration
	}{
		{"timeout", d.Keeper.World.Timeout},
		{"resendmax", d.Keeper.World.ResendMax},
		{"resendtimeout", d.Keeper.World.ResendTimeout},
	} {
		if l.value <= 0 {
			return fmt.Errorf("%w: %w", ErrUsage,
				model.Faultf(model.CodeInvalidConf, "a duration, for example 10s", "-%s %s is not above 0", l.name, l.value))
		}
	}
	if d.PIDFile != "" && !filepath.IsAbs(d.PIDFile) {
		return fmt.Errorf("%w: %w", ErrUsage,
			model.Faultf(model.CodeInvalidConf, "write the path from the root", "-pidfile %q is not absolute", d.PIDFile))
	}
	var err error
	if d.Keeper.Boot, err = boot.ID(); err != nil {
		return err
	}
	d.Keeper.Log = slog.New(slog.NewTextHandler(out.Stderr, nil))
	return d.Run(ctx)
}

func (d *Daemon) flags(out Outside) *flag.FlagSet {
	f := flag.NewFlagSet(out.Name, flag.ContinueOnError)
	f.SetOutput(out.Stderr)
	f.StringVar(&d.PIDFile, "pidfile", "", "write the process id to `FILE`")
	f.StringVar(&d.Keeper.HostPrefix, "hostprefix", "", "`DIR` before the paths of the socket and of namespaces")
	f.StringVar(&d.Socket, "socketpath", rpc.DefaultSocket, "`PATH` of the socket that plugins call")
	f.BoolVar(&d.Keeper.Broadcast, "broadcast", false, "ask servers to broadcast their answers")
	f.DurationVar(&d.Keeper.World.Timeout, "timeout", exchange.Timeout, "how long an answer to one message is waited for")
	f.DurationVar(&d.Keeper.World.ResendMax, "resendmax", exchange.ResendMax,
		"longest pause before a message is sent again")
	f.DurationVar(&d.Keeper.World.ResendTimeout, "resendtimeout", exchange.ResendTimeout, "how long a lease is asked for")
	f.StringVar(&d.Keeper.Dir, "statedir", StateDir,
		"`DIR` of the leases; best on a file system that does not outlive a boot")
	return f
}
