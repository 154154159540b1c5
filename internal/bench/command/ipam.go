// SPDX-License-Identifier: Apache-2.0

package command

import (
	"fmt"
	"log/slog"
	"os"
	"runtime/debug"
	"time"

	"github.com/spf13/cobra"

	benchipam "github.com/weft-net/weft/internal/bench/ipam"
	"github.com/weft-net/weft/internal/cli/agentconf"
	"github.com/weft-net/weft/internal/cli/ui"
	"github.com/weft-net/weft/internal/cluster/store"
	"github.com/weft-net/weft/internal/cluster/store/kube"
	"github.com/weft-net/weft/internal/model"
)

func newBenchIPAMCmd(env ui.Env) *cobra.Command {
	cfg := benchipam.Config{Dir: os.TempDir(), Now: time.Now}
	var kubeconfig, output string
	cmd := &cobra.Command{
		Use:   "ipam",
		Short: "Measure how fast addresses are given and recorded, and how fast blocks are claimed",
		Long: `Measures recorded allocations on one node: an address is chosen from the node's blocks, its record is in
the ledger's file before the call returns, and it is marked as done; then all are released. Afterwards the file is
opened again: an answer that is not there, or an address that was given twice, is an error. Calls that come together
share a transaction.

With --kubeconfig, --agents agents claim --blocks blocks each of one pool at the same time, each with its own
connection to the API server. The pool bears a name of its own and is of no network; it goes with its blocks when
the run ends. Conflicts are requests that the server refused because somebody else was faster.

Keys of -o json: rows [{metric, atATime, unit, n, p50, p99, min, max}], notes.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := ui.TextOrJSON(output); err != nil {
				return err
			}
			if err := checkBenchIPAM(cfg); err != nil {
				return err
			}
			cfg.Log = slog.New(slog.NewTextHandler(env.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))
			if kubeconfig != "" {
				cfg.Open = func(node string) (store.Objects, func() error, error) {
					s, err := kube.Open(kube.Config{
						Access: kube.Access{Kubeconfig: kubeconfig, Getenv: env.Getenv}, Node: node, Agent: "weft-bench",
						Log: cfg.Log, Now: time.Now, After: time.After,
					})
					if err != nil {
						return nil, nil, err
					}
					return s.Objects(), func() error { return nil }, nil
				}
			}
			debug.SetGCPercent(agentconf.GCPercent) // as the agent runs
			report, err := benchipam.Run(cmd.Context(), cfg)
			if err != nil {
				return err
			}
			return printTable(env, output, report)
		},
	}
	fl := cmd.Flags()
	fl.StringVar(&cfg.Dir, "dir", cfg.Dir, "`DIR` for ledgers and journals, of the file system that is to be measured")
	fl.IntVar(&cfg.Count, "count", 20000, "addresses in a sample")
	fl.IntVarP(&cfg.N, "n", "n", 5, "samples")
	fl.IntSliceVar(&cfg.Concurrency, "concurrency", []int{1, 8, 32}, "calls at a time")
	fl.StringVar(&kubeconfig, "kubeconfig", "", "`FILE` that says how an API server is reached: measure claims there, too")
	fl.IntVar(&cfg.Agents, "agents", 50, "agents that claim blocks")
	fl.IntVar(&cfg.Blocks, "blocks", 4, "blocks that each agent claims")
	fl.IntVar(&cfg.Rounds, "rounds", 3, "how often they do")
	fl.StringVarP(&output, "output", "o", "text", "text or json")
	return cmd
}

// checkBenchIPAM refuses what would otherwise come out in the middle of the run.
func checkBenchIPAM(cfg benchipam.Config) error {
	const most = 1 << 20 // a quarter of the pool
	for _, f := range []struct {
		flag        string
		value, most int
	}{
		{"--count", cfg.Count, most},
		{"-n", cfg.N, most},
		{"--agents", cfg.Agents, 4096},
		{"--blocks", cfg.Blocks, 16},
		{"--rounds", cfg.Rounds, most},
	} {
		if f.value < 1 || f.value > f.most {
			return ui.UsageError(
				model.Faultf(model.CodeInvalidConf, fmt.Sprintf("give 1 to %d", f.most), "%s %d cannot be used", f.flag, f.value),
			)
		}
	}
	for _, c := range cfg.Concurrency {
		if c < 1 {
			return ui.UsageError(model.Faultf(model.CodeInvalidConf, "give 1 or more", "--concurrency %d calls at a time", c))
		}
	}
	return nil
}
