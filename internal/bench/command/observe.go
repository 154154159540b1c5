// SPDX-License-Identifier: Apache-2.0

package command

import (
	"cmp"
	"log/slog"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/weft-net/weft/internal/bench/observe"
	"github.com/weft-net/weft/internal/cli/printer"
	"github.com/weft-net/weft/internal/cli/ui"
)

func newBenchObserveCmd(env ui.Env) *cobra.Command {
	var cfg observe.Config
	var output *printer.Format
	cmd := &cobra.Command{
		Use:   "observe",
		Short: "Measure what the observation of flows costs: connections, CPU time, memory",
		Long: `Creates a node with two pods of weft's agent and a policy, in temporary network namespaces, and measures it without an
agent, and with agents of observe.level off, denied and flows, one after the other, in a random order each round: the
rate of connections between the pods; the agent's CPU time and memory while a pod makes new flows at a rate; and the
time from a packet to its line of weft observe --follow. With the level off it lists what the agent has for the
observation: nothing. The host's network is not changed; drops of all of the host's packets are counted by the levels
denied and flows. Needs root.

Keys of -o json: off, connects [{level, n, median, ratio, from, to}], costs [{level, rate, n, made, lost, cpu, cpuMin,
cpuMax, rss, rssMax, rssRatio}], lines [{rate, n, p50, p95, max}], notes.`,
		Example: "  weft bench observe\n" +
			"  weft bench observe -n 101 --costs 0 --lines 0 -o json",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := cmp.Or(ui.UsageError(cfg.Check())); err != nil {
				return err
			}
			cfg.Self, cfg.Agent, cfg.Weft = env.Self, agentProgram(env), filepath.Join(filepath.Dir(env.Self), "weft")
			cfg.Log = slog.New(slog.NewTextHandler(env.Stderr, nil))
			report, err := observe.Run(cmd.Context(), cfg)
			if err != nil {
				return err
			}
			return printTable(env, output, report)
		},
	}
	fl := cmd.Flags()
	fl.IntVarP(&cfg.N, "n", "n", 31, "`COUNT` of rounds of connections; 0 skips them")
	fl.DurationVar(&cfg.Span, "span", 300*time.Millisecond, "`DURATION` of one measurement of connections, 1ms to 10s")
	fl.IntVar(&cfg.Costs, "costs", 3, "`COUNT` of rounds of CPU time and memory; 0 skips them")
	fl.IntSliceVar(&cfg.Rates, "rates", []int{0, 100, 1000, 5000}, "`COUNT` of new flows a second; several, separated by commas")
	fl.DurationVar(&cfg.CostSpan, "cost-span", 5*time.Second, "`DURATION` of one measurement of CPU time, 100ms to 20s")
	fl.IntVar(&cfg.Lines, "lines", 200, "`COUNT` of packets whose lines are awaited; 0 skips that")
	fl.StringVar(&cfg.BinDir, "bin-dir", filepath.Join(filepath.Dir(env.Self), "cni"), "`DIR` of weft's own plugins")
	fl.Uint64Var(&cfg.Seed, "seed", 1, "`SEED` for the order of levels")
	output = printer.Flag(cmd.Flags(), printer.Text, printer.JSON)
	return cmd
}
