// SPDX-License-Identifier: Apache-2.0

package command

import (
	"log/slog"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/weft-net/weft/internal/bench/path"
	"github.com/weft-net/weft/internal/cli/ui"
)

func newBenchPathCmd(env ui.Env) *cobra.Command {
	var cfg path.Config
	var output string
	cmd := &cobra.Command{
		Use:   "path",
		Short: "Measure packets from pod to pod, beside flannel's design and the bare wire",
		Long: `Builds nodes of flannel's design (bridge, br_netfilter, its rules), of weft's (pods joined by ptp, and by
bridge) and the bare wire, in throw-away network namespaces, and measures from pod to pod on one node and across
two: TCP and UDP request/response, connections, packets and one stream. In each round every way takes each test
once, in a new order. flannel's udp is the real flanneld's (--flanneld), with an etcd (--etcd). Needs root, iptables
and weft's own plugins (--bin-dir); the machine's own network is not touched. With --guards weft's designs are
measured with and without the guards of tunnels and of bridges' ports that agents have, instead of beside flannel's.

Keys of -o json: rows [{where, backend, design, test, unit, n, median, min, max, flannel, flannelMin, flannelMax,
unguarded, unguardedMin, unguardedMax, wire}], notes.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := ui.TextOrJSON(output); err != nil {
				return err
			}
			cfg.Self, cfg.Log = env.Self, slog.New(slog.NewTextHandler(env.Stderr, nil))
			report, err := path.Run(cmd.Context(), cfg)
			if err != nil {
				return err
			}
			return printTable(env, output, report)
		},
	}
	fl := cmd.Flags()
	fl.StringSliceVar(&cfg.Backends, "backends", []string{"host-gw", "vxlan", "udp"},
		"back ends to measure; what is on one node is of the first")
	fl.StringSliceVar(&cfg.Tests, "tests", nil, "tests to take (default all: tcp rr, udp rr, connect, packets, stream)")
	fl.IntVarP(&cfg.N, "n", "n", 7, "rounds")
	fl.DurationVar(&cfg.Span, "span", 300*time.Millisecond, "how long one test of one way takes")
	fl.BoolVar(&cfg.Guards, "guards", false, "compare with the same without guards, not with flannel's design")
	fl.StringVar(&cfg.BinDir, "bin-dir", filepath.Join(filepath.Dir(env.Self), "cni"), "directory of weft's own plugins")
	fl.StringVar(&cfg.Flanneld, "flanneld", "", "the program flanneld, built with its udp back end")
	fl.StringVar(&cfg.Etcd, "etcd", "", "the program etcd")
	fl.Uint64Var(&cfg.Seed, "seed", 1, "seed of the order in which ways take turns")
	fl.StringVarP(&output, "output", "o", "text", "text or json")
	return cmd
}

// newBenchPartCmd is what the bench starts of itself.
func newBenchPartCmd(env ui.Env) *cobra.Command {
	cmd := &cobra.Command{Use: "part", Short: "A part of a measurement, started by weft bench path", Hidden: true}
	cmd.AddCommand(newBenchCardCmd(env),
		&cobra.Command{
			Use: "end", Args: cobra.NoArgs,
			RunE: func(*cobra.Command, []string) error { return path.End(env.Stdin, env.Stdout) },
		},
		&cobra.Command{
			Use: "node", Args: cobra.NoArgs,
			RunE: func(cmd *cobra.Command, _ []string) error { return path.Node(cmd.Context(), env.Stdin, env.Stdout) },
		})
	return cmd
}
