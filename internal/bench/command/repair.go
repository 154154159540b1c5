// SPDX-License-Identifier: Apache-2.0

package command

import (
	"cmp"
	"log/slog"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/weft-net/weft/internal/bench"
	"github.com/weft-net/weft/internal/cli/printer"
	"github.com/weft-net/weft/internal/cli/ui"
)

func newBenchRepairCmd(env ui.Env) *cobra.Command {
	cfg := bench.RepairConfig{Agent: agentProgram(env)}
	var output *printer.Format
	cmd := &cobra.Command{
		Use:   "repair",
		Short: "Measure how long the agent takes to repair drift at running pods, and its CPU time when idle",
		Long: `Attaches --pods routed dual-stack pods to an agent in a temporary network namespace, measures the agent's CPU time
for --idle while nothing changes, then causes drift at one pod, -n times of each kind (deletes a route or a neighbor
on the node, sets the host interface down, deletes the address in the pod), and at all pods at once, --flushes times
of each kind (deletes routes, sets host interfaces down, flushes all rules). The report has the time until everything
is repaired. Needs root and nft; the host's network is not changed.

The agent repairs an object in a pod once in ten minutes, so there are at most as many samples of the pod's address as
pods.

Keys of -o json: pods, idle, rows [{extent, what, metric, unit, n, p50, p95, min, max}], notes.`,
		Example: "  weft bench repair --pods 50 --idle 0s\n" +
			"  weft bench repair -n 0 --flushes 0 --idle 10m",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := cmp.Or(ui.UsageError(cfg.Check())); err != nil {
				return err
			}
			cfg.Log = slog.New(slog.NewTextHandler(env.Stderr, nil))
			report, err := bench.Repair(cmd.Context(), cfg)
			if err != nil {
				return err
			}
			return printTable(env, output, report)
		},
	}
	fl := cmd.Flags()
	fl.StringVar(&cfg.BinDir, "bin-dir", filepath.Join(filepath.Dir(env.Self), "cni"), "`DIR` of weft's own plugins")
	fl.IntVar(&cfg.Pods, "pods", 250, "`COUNT` of attachments present")
	fl.IntVarP(&cfg.N, "n", "n", 50, "`COUNT` of samples per kind of drift at one pod")
	fl.IntVar(&cfg.Flushes, "flushes", 20, "`COUNT` of samples per kind of drift at all pods")
	fl.DurationVar(&cfg.Idle, "idle", time.Minute, "`DURATION` of measuring the idle agent; 0s skips that")
	fl.Uint64Var(&cfg.Seed, "seed", 1, "`SEED` for the order of drifts")
	output = printer.Flag(cmd.Flags(), printer.Text, printer.JSON)
	return cmd
}
