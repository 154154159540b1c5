// SPDX-License-Identifier: Apache-2.0

package command

import (
	"log/slog"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/weft-net/weft/internal/bench/vm"
	"github.com/weft-net/weft/internal/cli/ui"
)

func newBenchVMCmd(env ui.Env) *cobra.Command {
	var cfg vm.Config
	var output string
	cmd := &cobra.Command{
		Use:   "vm",
		Short: "Measure the ways between a virtual machine and its pod's network, beside the in-pod bridge",
		Long: `Builds a node with two routed pods for each binding of virtual machines, in throw-away network namespaces:
in one pod is the machine, made as weft vm phase1 makes it, the other one is its peer. Measured are the processor's
time for a frame of 64 bytes each way with a card in user space, without any guest, and, with a guest in a namespace
behind such a card, TCP request/response, connections and one stream each way. In each round every node takes each
test once, in a new order. The plain pod, without a machine, is the limit. Needs root; the machine's own network is
not touched.

Keys of -o json: rows [{design, test, unit, n, median, min, max, rate, base, baseMin, baseMax, masquerade,
masqueradeMin, masqueradeMax, pod}], notes.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := ui.TextOrJSON(output); err != nil {
				return err
			}
			cfg.Self, cfg.Log = env.Self, slog.New(slog.NewTextHandler(env.Stderr, nil))
			report, err := vm.Run(cmd.Context(), cfg)
			if err != nil {
				return err
			}
			return printTable(env, output, report)
		},
	}
	fl := cmd.Flags()
	fl.StringSliceVar(&cfg.Designs, "designs", nil, "designs to measure (default all: "+
		strings.Join(vm.Designs(), ", ")+")")
	fl.StringSliceVar(&cfg.Tests, "tests", nil, "tests to take (default all: "+strings.Join(vm.Tests(), ", ")+")")
	fl.IntVarP(&cfg.N, "n", "n", 7, "rounds")
	fl.DurationVar(&cfg.Span, "span", 200*time.Millisecond, "how long one test of one node takes")
	fl.IntVar(&cfg.Starts, "starts", 100, "machines of each design to start; 0 leaves that out")
	fl.Uint64Var(&cfg.Seed, "seed", 1, "seed of the order in which nodes take turns")
	fl.StringVarP(&output, "output", "o", "text", "text or json")
	return cmd
}

// newBenchCardCmd is the card of a machine.
func newBenchCardCmd(env ui.Env) *cobra.Command {
	var guest bool
	cmd := &cobra.Command{
		Use: "card", Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error { return vm.Card(os.Stdin, env.Stdout, guest) },
	}
	cmd.Flags().BoolVar(&guest, "guest", false, "there is a guest")
	return cmd
}
