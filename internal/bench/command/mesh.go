// SPDX-License-Identifier: Apache-2.0

package command

import (
	"cmp"
	"io"
	"log/slog"
	"runtime/debug"

	"github.com/spf13/cobra"

	"github.com/weft-net/weft/internal/bench"
	"github.com/weft-net/weft/internal/cli/agentconf"
	"github.com/weft-net/weft/internal/cli/printer"
	"github.com/weft-net/weft/internal/cli/ui"
)

func newBenchMeshCmd(env ui.Env) *cobra.Command {
	var cfg bench.MeshConfig
	var output *printer.Format
	cmd := &cobra.Command{
		Use:   "mesh",
		Short: "Measure how a node programs its peers, compared with sequential netlink requests",
		Long: `Programs the routes and tunnels to peers in temporary network namespaces: by weft's reconciler, and by sequential netlink
requests, as flannel does; for host-gw also with the route lists that flannel reads before each addition, up to --listed
peers. Then one peer joins, changes its MAC address and leaves. The ways are interleaved; the report has medians of n
samples, weft's ratio to each, and the rtnetlink messages in both directions. Needs root; the host's network is not
changed.

Keys of -o json: rows [{backend, peers, op, way, metric, unit, n, median, min, max, ratio}], notes.`,
		Example: "  weft bench mesh --peers 100,1000 -n 3\n" +
			"  weft bench mesh --backends vxlan -o json",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := cmp.Or(ui.UsageError(cfg.Check())); err != nil {
				return err
			}
			cfg.Log = slog.New(slog.NewTextHandler(env.Stderr, nil))
			debug.SetGCPercent(agentconf.GCPercent) // as the agent runs
			report, err := bench.Mesh(cmd.Context(), cfg)
			if err != nil {
				return err
			}
			return printTable(env, output, report)
		},
	}
	fl := cmd.Flags()
	fl.IntSliceVar(&cfg.Peers, "peers", []int{100, 1000, 5000, 10000}, "`COUNT` of peers; several, separated by commas")
	fl.StringSliceVar(&cfg.Backends, "backends", []string{"host-gw", "vxlan"}, "`BACKEND` to measure: host-gw or vxlan; several, separated by commas")
	fl.IntVarP(&cfg.N, "n", "n", 5, "`COUNT` of samples")
	fl.IntVar(&cfg.Changes, "changes", 10000, "`COUNT` of peers present when one joins, changes and leaves; 0 skips that")
	fl.IntVar(&cfg.Listed, "listed", 1000, "largest `COUNT` of peers for flannel's route lists")
	fl.Uint64Var(&cfg.Seed, "seed", 1, "`SEED` for the order of methods")
	output = printer.Flag(cmd.Flags(), printer.Text, printer.JSON)
	return cmd
}

// printTable prints a report as text or JSON.
func printTable(env ui.Env, output *printer.Format, report interface{ Text(w io.Writer) error }) error {
	if !output.Document() {
		return report.Text(env.Stdout)
	}
	return output.Print(env.Stdout, report)
}
