// SPDX-License-Identifier: Apache-2.0

package command

import (
	"log/slog"
	"time"

	"github.com/spf13/cobra"

	"github.com/weft-net/weft/internal/bench/policy"
	"github.com/weft-net/weft/internal/cli/ui"
)

func newBenchPolicyCmd(env ui.Env) *cobra.Command {
	var cfg policy.Config
	var output string
	cmd := &cobra.Command{
		Use:   "policy",
		Short: "Measure what network policies cost, beside iptables, Calico's and kube-router's rules",
		Long: `Builds nodes with two routed pods in throw-away network namespaces: one without any rules, and for each
number of policies and peers one with rules as iptables' users write them (a rule for each peer), one each with
ipset and rules as Calico and kube-router write them, and one of weft's. The policies select the server; the peers
are dealt out among them, and the client is the last peer of the last policy. In each round every node takes each
test once, in a new order. Then it is measured how long programming takes: so many entries (pods' addresses; ranges
of an ipBlock), and one more. Needs root, iptables and ipset; the machine's own network is not touched.

Keys of -o json: rows [{engine, policies, peers, blocks, test, unit, n, median, min, max, routed, routedMin, routedMax,
few, fewMin, fewMax}], notes.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := ui.TextOrJSON(output); err != nil {
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
		"engines to measure (default all: routed, iptables, calico, kube-router, weft)")
	fl.IntSliceVar(&cfg.Policies, "policies", []int{0, 1, 10, 1000}, "policies that select the server")
	fl.IntSliceVar(&cfg.Peers, "peers", []int{0, 100, 1000, 10000}, "peers that the policies name together")
	fl.StringSliceVar(&cfg.Tests, "tests", nil, "tests to take (default connect, tcp rr)")
	fl.IntVarP(&cfg.N, "n", "n", 7, "rounds")
	fl.DurationVar(&cfg.Span, "span", 150*time.Millisecond, "how long one test of one node takes")
	fl.IntVar(&cfg.Program, "program", 10000, "entries to program; 0 leaves that out")
	fl.Uint64Var(&cfg.Seed, "seed", 1, "seed of the order in which nodes take turns")
	fl.StringVarP(&output, "output", "o", "text", "text or json")
	return cmd
}
