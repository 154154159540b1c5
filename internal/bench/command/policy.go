// SPDX-License-Identifier: Apache-2.0

package command

import (
	"cmp"
	"log/slog"
	"time"

	"github.com/spf13/cobra"

	"github.com/weft-net/weft/internal/bench/policy"
	"github.com/weft-net/weft/internal/cli/printer"
	"github.com/weft-net/weft/internal/cli/ui"
)

func newBenchPolicyCmd(env ui.Env) *cobra.Command {
	var cfg policy.Config
	var output *printer.Format
	cmd := &cobra.Command{
		Use:   "policy",
		Short: "Measure the cost of network policies, compared with rules of iptables, Calico and kube-router",
		Long: `Creates nodes with two routed pods in temporary network namespaces: one without any rules, and for each
number of policies and peers one with a plain iptables rule per peer, one each with ipsets and rules as Calico and
kube-router write them, and one with weft's. The policies select the server; the peers are distributed over them,
and the client is the last peer of the last policy. In each round every node runs each test once, in a random
order. Then the programming time is measured: all entries (pod addresses; address ranges of an ipBlock), and one
more. Needs root, iptables and ipset; the host's network is not changed.

Keys of -o json: rows [{engine, policies, peers, blocks, test, unit, n, median, min, max, routed, routedMin, routedMax,
few, fewMin, fewMax}], notes.`,
		Example: "  weft bench policy --policies 1 --peers 0,1000\n" +
			"  weft bench policy --engines routed,calico,weft -n 3 -o json",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := cmp.Or(ui.UsageError(cfg.Check())); err != nil {
				return err
			}
			cfg.Self, cfg.Log = env.Self, slog.New(slog.NewTextHandler(env.Stderr, nil))
			report, err := policy.Run(cmd.Context(), cfg)
			if err != nil {
				return err
			}
			return printTable(env, output, report)
		},
	}
	fl := cmd.Flags()
	fl.StringSliceVar(&cfg.Engines, "engines", nil,
		"`ENGINE` to measure: routed, iptables, calico, kube-router or weft; several, separated by commas (default: all)")
	fl.IntSliceVar(&cfg.Policies, "policies", []int{0, 1, 10, 1000}, "`COUNT` of policies that select the server; several, separated by commas")
	fl.IntSliceVar(&cfg.Peers, "peers", []int{0, 100, 1000, 10000}, "`COUNT` of peers of all policies together; several, separated by commas")
	fl.StringSliceVar(&cfg.Tests, "tests", nil, "`TEST` to run, as for weft bench path; several, separated by commas (default: connect, tcp rr)")
	fl.IntVarP(&cfg.N, "n", "n", 7, "`COUNT` of rounds")
	fl.DurationVar(&cfg.Span, "span", 150*time.Millisecond, "`DURATION` of one test of one node")
	fl.IntVar(&cfg.Program, "program", 10000, "`COUNT` of entries to program; 0 skips that")
	fl.Uint64Var(&cfg.Seed, "seed", 1, "`SEED` for the order of nodes")
	output = printer.Flag(cmd.Flags(), printer.Text, printer.JSON)
	return cmd
}
