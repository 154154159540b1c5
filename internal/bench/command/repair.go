// SPDX-License-Identifier: Apache-2.0

package command

import (
	"log/slog"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/weft-net/weft/internal/bench"
	"github.com/weft-net/weft/internal/cli/ui"
	"github.com/weft-net/weft/internal/model"
)

func newBenchRepairCmd(env ui.Env) *cobra.Command {
	cfg := bench.RepairConfig{Agent: agentProgram(env)}
	var output string
	cmd := &cobra.Command{
		Use:   "repair",
		Short: "Measure how long the agent takes to put back what is taken from running pods, and what it costs when idle",
		Long: `Attaches --pods routed pods of two families to an agent in a network namespace of its own, watches the
agent's CPU for --idle while nothing happens, then takes one thing of one pod away, -n times of each kind (a route
or a neighbor on the node, the link on the node down, the address in the pod), and something of all pods at once,
--flushes times of each kind (their routes, their links down, all rules). Given is the time until everything is
there again. Needs root and nft; the machine's own network is not touched.

In a pod a thing is put back once in ten minutes, so of its address there are at most as many samples as pods.

Keys of -o json: pods, idle, rows [{extent, what, metric, unit, n, p50, p95, min, max}], notes.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := ui.TextOrJSON(output); err != nil {
				return err
			}
			for flag, n := range map[string]int{
				"-n": cfg.N, "--flushes": cfg.Flushes, "--pods": cfg.Pods - 1, "--idle": int(cfg.Idle),
			} {
				if n < 0 {
					return ui.UsageError(
						model.Faultf(model.CodeInvalidConf, "give 0 or more; of pods, 1 or more", "%s is too small", flag),
					)
				}
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
	fl.StringVar(&cfg.BinDir, "bin-dir", filepath.Join(filepath.Dir(env.Self), "cni"), "directory of weft's own plugins")
	fl.IntVar(&cfg.Pods, "pods", 250, "attachments present")
	fl.IntVarP(&cfg.N, "n", "n", 50, "samples of each thing that is taken from one pod")
	fl.IntVar(&cfg.Flushes, "flushes", 20, "samples of each thing that is taken from all pods at once")
	fl.DurationVar(&cfg.Idle, "idle", time.Minute, "how long the idle agent is watched; 0 leaves that out")
	fl.Uint64Var(&cfg.Seed, "seed", 1, "seed of the order in which things are taken away")
	fl.StringVarP(&output, "output", "o", "text", "text or json")
	return cmd
}
