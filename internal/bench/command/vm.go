// SPDX-License-Identifier: Apache-2.0

package command

import (
	"cmp"
	"log/slog"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/weft-net/weft/internal/bench/vm"
	"github.com/weft-net/weft/internal/cli/printer"
	"github.com/weft-net/weft/internal/cli/ui"
	"github.com/weft-net/weft/internal/model"
)

func newBenchVMCmd(env ui.Env) *cobra.Command {
	var cfg vm.Config
	var output *printer.Format
	cmd := &cobra.Command{
		Use:   "vm",
		Short: "Measure the bindings between a VM and its pod's network, compared with the in-pod bridge",
		Long: `Creates a node with two routed pods for each binding, in temporary network namespaces: one pod has the VM, set up
as by weft vm phase1, the other one is its peer. Measures the CPU time per frame of 64 bytes in each direction with a
NIC in user space, without a guest, and, with a guest in a namespace behind such a NIC, TCP request/response,
connections and one stream in each direction. In each round every node runs each test once, in a random order. The
plain pod, without a VM, is the upper limit. Needs root; the host's network is not changed.

Keys of -o json: rows [{design, test, unit, n, median, min, max, rate, base, baseMin, baseMax, masquerade,
masqueradeMin, masqueradeMax, pod}], notes.`,
		Example: "  weft bench vm --designs pod,direct-peer,bridge\n" +
			"  weft bench vm --tests \"frames out,tcp rr\" -n 11 -o json",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := cmp.Or(ui.UsageError(cfg.Check())); err != nil {
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
	fl.StringSliceVar(&cfg.Designs, "designs", nil, "`DESIGN` to measure: "+
		model.OneOf(vm.Designs())+"; several, separated by commas (default: all)")
	fl.StringSliceVar(&cfg.Tests, "tests", nil, "`TEST` to run: "+model.OneOf(vm.Tests())+
		"; several, separated by commas (default: all)")
	fl.IntVarP(&cfg.N, "n", "n", 7, "`COUNT` of rounds")
	fl.DurationVar(&cfg.Span, "span", 200*time.Millisecond, "`DURATION` of one test of one node")
	fl.IntVar(&cfg.Starts, "starts", 100, "`COUNT` of VMs of each design to start; 0 skips that")
	fl.Uint64Var(&cfg.Seed, "seed", 1, "`SEED` for the order of nodes")
	output = printer.Flag(cmd.Flags(), printer.Text, printer.JSON)
	return cmd
}

// newBenchNICCmd returns the command for the NIC process of a VM.
func newBenchNICCmd(env ui.Env) *cobra.Command {
	var guest bool
	cmd := &cobra.Command{
		Use: "card", Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error { return vm.RunNIC(os.Stdin, env.Stdout, guest) },
	}
	cmd.Flags().BoolVar(&guest, "guest", false, "there is a guest")
	return cmd
}
