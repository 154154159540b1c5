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
	"github.com/weft-net/weft/internal/cli/printer"
	"github.com/weft-net/weft/internal/cli/ui"
	"github.com/weft-net/weft/internal/cluster/store"
	"github.com/weft-net/weft/internal/cluster/store/kube"
	"github.com/weft-net/weft/internal/model"
)

func newBenchIPAMCmd(env ui.Env) *cobra.Command {
	cfg := benchipam.Config{Dir: os.TempDir(), Now: time.Now}
	var kubeconfig string
	var output *printer.Format
	cmd := &cobra.Command{
		Use:   "ipam",
		Short: "Measure the rates of recorded address allocations and of block claims",
		Long: `Measures recorded allocations on one node: an address is allocated from the node's blocks, its record is in
the ledger's file before the call returns, and the record is marked as done; then all addresses are released. The
ledger is opened again and compared: a missing record or a duplicate allocation is an error. Concurrent calls share
a transaction.

With --kubeconfig, --agents agents claim --blocks blocks each of one pool at the same time, each with its own
connection to the API server. The pool has a unique name and is not routed; the pool and its blocks are deleted at
the end of the run. Conflicts are requests that the API server rejected because another agent was faster.

Keys of -o json: rows [{metric, atATime, unit, n, p50, p99, min, max}], notes.`,
		Example: "  weft bench ipam\n" +
			"  weft bench ipam --kubeconfig /etc/kubernetes/admin.conf --agents 10",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
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
	fl.StringVar(&cfg.Dir, "dir", cfg.Dir, "`DIR` for ledgers and journals, on the file system to measure")
	fl.IntVar(&cfg.Count, "count", 20000, "`COUNT` of addresses per sample")
	fl.IntVarP(&cfg.N, "n", "n", 5, "`COUNT` of samples")
	fl.IntSliceVar(&cfg.Concurrency, "concurrency", []int{1, 8, 32}, "`COUNT` of concurrent calls; several, separated by commas")
	fl.StringVar(&kubeconfig, "kubeconfig", "", "kubeconfig `FILE` of an API server: measure claims, too")
	fl.IntVar(&cfg.Agents, "agents", 50, "`COUNT` of agents that claim blocks, with --kubeconfig")
	fl.IntVar(&cfg.Blocks, "blocks", 4, "`COUNT` of blocks that each agent claims, with --kubeconfig")
	fl.IntVar(&cfg.Rounds, "rounds", 3, "`COUNT` of rounds of claims, with --kubeconfig")
	output = printer.Flag(cmd.Flags(), printer.Text, printer.JSON)
	return cmd
}

// checkBenchIPAM validates the flags before the run.
func checkBenchIPAM(cfg benchipam.Config) error {
	const most = 1 << 20 // a quarter of the pool
	for _, f := range []struct {
		flag                 string
		value, most, example int
	}{
		{"--count", cfg.Count, most, 20000},
		{"-n", cfg.N, most, 5},
		{"--agents", cfg.Agents, 4096, 50},
		{"--blocks", cfg.Blocks, 16, 4},
		{"--rounds", cfg.Rounds, most, 3},
	} {
		if f.value < 1 || f.value > f.most {
			return ui.UsageError(model.OutOfRange(f.flag, f.value, fmt.Sprintf("1 to %d", f.most), f.example))
		}
	}
	for _, c := range cfg.Concurrency {
		if c < 1 {
			return ui.UsageError(model.OutOfRange("--concurrency", c, "1 or more", "1,8"))
		}
	}
	return nil
}
