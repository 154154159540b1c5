// SPDX-License-Identifier: Apache-2.0

package command

import (
	"crypto/rand"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"math/big"
	"net"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/weft-net/weft/internal/cli/ui"
	"github.com/weft-net/weft/internal/flannel/flanneld"
)

func newFlanneldCmd(env ui.Env) *cobra.Command {
	return &cobra.Command{
		Use:   "flanneld",
		Short: "Stand in for flannel's daemon: same flags, same files, same rules",
		Long: `Stand in for flannel's node daemon until SIGTERM. It takes flanneld's flags, with one dash or two, each
also as environment FLANNELD_<FLAG>; a program of the name flanneld that is a link to weft-agent is the same.
It keeps no state but the subnet file and the key of WireGuard. Pods keep their network while it is away.`,
		DisableFlagParsing: true, // flanneld's flags have one dash
		RunE: func(cmd *cobra.Command, args []string) error {
			return runFlanneld(cmd, env, args)
		},
	}
}

func runFlanneld(cmd *cobra.Command, env ui.Env, args []string) error {
	var o flanneld.Options
	flags := flanneld.NewFlags(&o)
	flags.SetOutput(env.Stderr)
	flags.Usage = func() {
		fmt.Fprintf(env.Stderr, "%s\n\nFlags:\n", cmd.Long)
		flags.PrintDefaults()
	}
	switch err := flags.Parse(args); {
	case errors.Is(err, flag.ErrHelp):
		return nil
	case err != nil:
		return ui.Exit(2) // it has said why
	case flags.NArg() > 0:
		return ui.UsageError(fmt.Errorf("flanneld takes no argument %q", flags.Arg(0)))
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
		Now: time.Now, After: time.After, Entropy: rand.Reader, Random: random, Step: agentStep(env),
		Ready: func() {
			if err := notify(env.Getenv("NOTIFY_SOCKET")); err != nil {
				log.Warn("systemd is not told", "err", err)
			}
		},
	})
}

// random is a number below n.
func random(n int) int {
	i, err := rand.Int(rand.Reader, big.NewInt(int64(n)))
	if err != nil {
		return 0
	}
	return int(i.Int64())
}

// notify tells systemd that a service is ready, where it wants to know.
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
