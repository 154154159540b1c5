// SPDX-License-Identifier: Apache-2.0

package command

import (
	"crypto/rand"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"math/big"
	"net"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/weft-net/weft/internal/cli/ui"
	"github.com/weft-net/weft/internal/failpoint"
	"github.com/weft-net/weft/internal/flannel/flanneld"
)

func newFlanneldCmd(env ui.Env) *cobra.Command {
	return &cobra.Command{
		Use:   "flanneld",
		Short: "Replace flanneld: same flags, same files, same rules",
		Long: `Runs in place of flannel's node daemon until SIGTERM. It accepts flanneld's flags, with one dash or two, and their
environment variables FLANNELD_<FLAG>. A link to weft-agent that is named flanneld runs this command. The only state is
the subnet file and the key of WireGuard. Pods keep their network while it is not running.`,
		Example: "  weft flanneld --kube-subnet-mgr --ip-masq\n" +
			"  weft flanneld -etcd-endpoints=http://10.0.0.5:2379 -iface=eth1",
		DisableFlagParsing: true, // flanneld's flags have one dash
		RunE: func(cmd *cobra.Command, args []string) error {
			return runFlanneld(cmd, env, args)
		},
	}
}

func runFlanneld(cmd *cobra.Command, env ui.Env, args []string) error {
	var o flanneld.Options
	flags := flanneld.NewFlags(&o)
	flags.SetOutput(io.Discard) // package flag prints errors in Go's terms
	flags.Usage = func() {}
	switch err := flags.Parse(args); {
	case errors.Is(err, flag.ErrHelp):
		fmt.Fprintf(env.Stderr, "%s\n\nExamples:\n%s\n\nFlags:\n", cmd.Long, cmd.Example)
		flags.SetOutput(env.Stderr)
		flags.PrintDefaults()
		return nil
	case err != nil:
		return ui.FlagSetError(cmd.CommandPath(), flags, err)
	case flags.NArg() > 0:
		return ui.Misusef("flanneld has flags only; `weft flanneld --help` lists them", "unexpected argument %q", flags.Arg(0))
	}
	if o.Version {
		fmt.Fprintln(env.Stderr, env.Version)
		return nil
	}
	if err := flanneld.FromEnv(flags, env.Getenv); err != nil {
		return err
	}
	level := slog.LevelInfo
	if o.Verbosity > 1 {
		level = slog.LevelDebug
	}
	log := slog.New(slog.NewTextHandler(env.Stderr, &slog.HandlerOptions{Level: level}))
	return flanneld.Run(cmd.Context(), flanneld.Config{
		Options: o, Getenv: env.Getenv, Env: []string{"PATH=" + env.Getenv("PATH")}, Version: env.Version, Log: log,
		Now: time.Now, After: time.After, Entropy: rand.Reader, Random: random, Failpoint: failpoint.FromFile(env.Getenv(failpoint.FileEnv), env.Stderr),
		Ready: func() {
			if err := notify(env.Getenv("NOTIFY_SOCKET")); err != nil {
				log.Warn("systemd could not be notified", "err", err)
			}
		},
	})
}

// random returns a number below n.
func random(n int) int {
	i, err := rand.Int(rand.Reader, big.NewInt(int64(n)))
	if err != nil {
		return 0
	}
	return int(i.Int64())
}

// notify notifies systemd that a service is ready, if it is one.
func notify(socket string) error {
	if socket == "" {
		return nil
	}
	if rest, abstract := strings.CutPrefix(socket, "@"); abstract {
		socket = "\x00" + rest
	}
	c, err := net.Dial("unixgram", socket)
	if err != nil {
		return err
	}
	defer func() { _ = c.Close() }()
	_, err = c.Write([]byte("READY=1"))
	return err
}
