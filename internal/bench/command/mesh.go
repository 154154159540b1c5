// SPDX-License-Identifier: Apache-2.0

package command

import (
	"encoding/json"
	"io"
	"log/slog"
	"runtime/debug"

	"github.com/spf13/cobra"

	"github.com/weft-net/weft/internal/bench"
	"github.com/weft-net/weft/internal/cli/agentconf"
	"github.com/weft-net/weft/internal/cli/ui"
)

func newBenchMeshCmd(env ui.Env) *cobra.Command {
	var cfg bench.MeshConfig
	var output string
	cmd := &cobra.Command{
		Use:   "mesh",
		Short: "Measure how a node reaches its peers, beside one netlink request after the other",
		Long: `Brings the routes and tunnels to peers up in throw-away network namespaces: by weft's reconciler, and by one netlink
request after the other, as flannel does it; for host-gw also with the lists that flannel asks for before each route, up
to --listed peers. Then one peer joins, changes its MAC address and leaves. The ways take turns; given are medians of n
samples, weft's ratio to each, and the rtnetlink messages of both directions. Needs root; the machine's own network is
not touched.

Keys of -o json: rows [{backend, peers, op, way, metric, unit, n, median, min, max, ratio}], notes.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := ui.TextOrJSON(output); err != nil {
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
	fl.IntSliceVar(&cfg.Peers, "peers", []int{100, 1000, 5000, 10000}, "numbers of peers")
	fl.StringSliceVar(&cfg.Backends, "backends", []string{"host-gw", "vxlan"}, "back ends to measure")
	fl.IntVarP(&cfg.N, "n", "n", 5, "samples")
	fl.IntVar(&cfg.Changes, "changes", 10000, "peers present when one joins, changes and leaves; 0 leaves that out")
	fl.IntVar(&cfg.Listed, "listed", 1000, "up to how many peers flannel's lists are measured")
	fl.Uint64Var(&cfg.Seed, "seed", 1, "seed of the order in which the ways take turns")
	fl.StringVarP(&output, "output", "o", "text", "text or json")
	return cmd
}

// printTable prints what can print itself.
func printTable(env ui.Env, output string, report interface{ Text(w io.Writer) error }) error {
	if output == "text" {
		return report.Text(env.Stdout)
	}
	enc := json.NewEncoder(env.Stdout)
	enc.SetIndent("", "  ")
	return enc.Encode(report)
}
