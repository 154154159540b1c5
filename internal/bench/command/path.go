// SPDX-License-Identifier: Apache-2.0

package command

import (
	"cmp"
	"log/slog"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/weft-net/weft/internal/bench/observe"
	"github.com/weft-net/weft/internal/bench/path"
	"github.com/weft-net/weft/internal/cli/printer"
	"github.com/weft-net/weft/internal/cli/ui"
)

func newBenchPathCmd(env ui.Env) *cobra.Command {
	var cfg path.Config
	var output *printer.Format
	cmd := &cobra.Command{
		Use:   "path",
		Short: "Measure pod-to-pod traffic, compared with flannel's dataplane and the bare wire",
		Long: `Creates nodes with flannel's dataplane (bridge, br_netfilter, its rules), with weft's (pods attached by ptp, and by
bridge) and the bare wire, in temporary network namespaces, and measures pod-to-pod traffic on one node and across
two: TCP and UDP request/response, connections, packets and one stream. In each round every way runs each test once,
in a random order. flannel's udp uses the real flanneld (--flanneld), with an etcd (--etcd). Needs root, iptables and
weft's plugins (--bin-dir); the host's network is not changed. With --guards weft's designs are compared with and
without the source guards of tunnels and bridge ports that agents enforce, instead of with flannel's. With --fast-path
weft's routed pods are compared with and without network.fastPath ebpf. With --policies they are also measured with as
many NetworkPolicies, each of which selects all pods in both directions and allows ten pods of other nodes, the last
one also these pods; with --unfiltered also without any rule and connection tracking on the nodes.

Keys of -o json: rows [{where, backend, design, test, unit, n, median, min, max, flannel, flannelMin, flannelMax,
unguarded, unguardedMin, unguardedMax, slow, slowMin, slowMax, unselected, unselectedMin, unselectedMax, unfiltered,
unfilteredMin, unfilteredMax, wire}], notes.`,
		Example: "  weft bench path --backends host-gw,vxlan\n" +
			"  weft bench path --fast-path --policies 1000 --backends host-gw,vxlan -n 15\n" +
			"  weft bench path --guards --backends host-gw,vxlan --tests \"tcp rr,udp rr\" -n 31 --span 150ms",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := cmp.Or(ui.UsageError(cfg.Check())); err != nil {
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
		"`BACKEND` to measure: host-gw, vxlan or udp; several, separated by commas; traffic on one node uses the first one")
	fl.StringSliceVar(&cfg.Tests, "tests", nil, "`TEST` to run: tcp rr, udp rr, connect, packets or stream; several, separated by commas (default: all)")
	fl.IntVarP(&cfg.N, "n", "n", 7, "`COUNT` of rounds")
	fl.DurationVar(&cfg.Span, "span", 300*time.Millisecond, "`DURATION` of one test of one way, 1ms to 10s")
	fl.BoolVar(&cfg.Guards, "guards", false, "compare with weft without source guards, not with flannel's dataplane")
	fl.BoolVar(&cfg.FastPath, "fast-path", false, "compare weft's routed pods with and without network.fastPath ebpf")
	fl.IntVar(&cfg.Policies, "policies", 0, "also measure weft's routed pods with `COUNT` NetworkPolicies")
	fl.BoolVar(&cfg.Unfiltered, "unfiltered", false, "also measure weft's routed pods without any rule on the nodes")
	fl.StringVar(&cfg.BinDir, "bin-dir", filepath.Join(filepath.Dir(env.Self), "cni"), "`DIR` of weft's own plugins")
	fl.StringVar(&cfg.Flanneld, "flanneld", "", "`FILE` of the program flanneld, built with its udp backend")
	fl.StringVar(&cfg.Etcd, "etcd", "", "`FILE` of the program etcd")
	fl.Uint64Var(&cfg.Seed, "seed", 1, "`SEED` for the order of ways")
	output = printer.Flag(cmd.Flags(), printer.Text, printer.JSON)
	return cmd
}

// newBenchPartCmd returns the hidden command for the processes that the benchmark starts.
func newBenchPartCmd(env ui.Env) *cobra.Command {
	cmd := &cobra.Command{Use: "part", Short: "A process of a measurement, started by weft-bench", Hidden: true}
	cmd.AddCommand(newBenchNICCmd(env),
		&cobra.Command{
			Use: "end", Args: cobra.NoArgs,
			RunE: func(*cobra.Command, []string) error { return path.ServeOrders(env.Stdin, env.Stdout) },
		},
		&cobra.Command{
			Use: "flows", Args: cobra.NoArgs,
			RunE: func(*cobra.Command, []string) error { return observe.Load(env.Stdin, env.Stdout) },
		},
		&cobra.Command{
			Use: "node", Args: cobra.NoArgs,
			RunE: func(cmd *cobra.Command, _ []string) error { return path.RunNode(cmd.Context(), env.Stdin, env.Stdout) },
		})
	return cmd
}
