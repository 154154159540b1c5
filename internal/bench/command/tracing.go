// SPDX-License-Identifier: Apache-2.0

package command

import (
	"cmp"
	"time"

	"github.com/spf13/cobra"

	"github.com/weft-net/weft/internal/bench/tracing"
	"github.com/weft-net/weft/internal/cli/printer"
	"github.com/weft-net/weft/internal/cli/ui"
)

func newBenchTraceCmd(env ui.Env) *cobra.Command {
	var cfg tracing.Config
	var output *printer.Format
	cmd := &cobra.Command{
		Use:   "trace",
		Short: "Measure what a trace costs connections that it does not follow",
		Long: `Makes TCP connections through a router, in temporary network namespaces, and measures their rate without a trace, with
the rules of a trace in all of them, with its program that reports dropped packets, and with both. In each round each
kind is measured once, in a random order. Needs root and ip; the host's network is not changed.

Keys of -o json: rows [{kind, n, median, ratio, low, high}], notes.`,
		Example: "  weft bench trace\n" +
			"  weft bench trace -n 31 --span 500ms -o json",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := cmp.Or(ui.UsageError(cfg.Check())); err != nil {
				return err
			}
			report, err := tracing.Run(cmd.Context(), cfg)
			if err != nil {
				return err
			}
			return printTable(env, output, report)
		},
	}
	fl := cmd.Flags()
	fl.IntVarP(&cfg.N, "n", "n", 15, "`COUNT` of rounds")
	fl.DurationVar(&cfg.Span, "span", 300*time.Millisecond, "`DURATION` of one kind in a round")
	fl.Uint64Var(&cfg.Seed, "seed", 1, "`SEED` for the order of kinds")
	output = printer.Flag(cmd.Flags(), printer.Text, printer.JSON)
	return cmd
}
