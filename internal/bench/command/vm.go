// SPDX-License-Identifier: Apache-2.0

package command

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/weft-net/weft/internal/bench/migration"
	"github.com/weft-net/weft/internal/bench/vm"
	"github.com/weft-net/weft/internal/cli/printer"
	"github.com/weft-net/weft/internal/cli/ui"
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/vm/guestimage"
)

func newBenchVMCmd(env ui.Env) *cobra.Command {
	var cfg vm.Config
	idle := migration.IdleConfig{Settle: 20 * time.Second}
	var output *printer.Format
	cmd := &cobra.Command{
		Use:   "vm",
		Short: "Measure the bindings between a VM and its pod's network, compared with the in-pod bridge",
		Long: `Creates a node with two routed pods for each binding, in temporary network namespaces: one pod has the VM, set up
as by weft vm phase1, the other one is its peer. Measures the CPU time per frame of 64 bytes in each direction with a
NIC in user space, without a guest, and, with a guest in a namespace behind such a NIC, TCP request/response,
connections and one stream in each direction. In each round every node runs each test once, in a random order. The
plain pod, without a VM, is the upper limit. Needs root; the host's network is not changed.

With --idle it measures an agent instead: its CPU time and memory in a minute without VMs, while that many guests boot
under QEMU, and in a minute in which they are idle. It needs what weft bench migration needs.

Keys of -o json: rows [{design, test, unit, n, median, min, max, rate, base, baseMin, baseMax, masquerade,
masqueradeMin, masqueradeMax, pod}], notes; with --idle: rows [{what, vms, seconds, cpu, percent, rss}], notes.`,
		Example: "  weft bench vm --designs pod,direct-peer,bridge\n" +
			"  weft bench vm --tests \"frames out,tcp rr\" -n 11 -o json\n" +
			"  weft bench vm --idle 20",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := cmp.Or(ui.UsageError(cfg.Check())); err != nil {
				return err
			}
			if cmd.Flags().Changed("idle") {
				return benchIdle(cmd.Context(), env, idle, output)
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
	fl.IntVar(&idle.VMs, "idle", 0, "`COUNT` of idle VMs, with which an agent is measured instead")
	fl.DurationVar(&idle.Span, "idle-span", time.Minute, "`DURATION` for which the agent is measured, with --idle")
	fl.StringVar(&idle.BinDir, "bin-dir", filepath.Join(filepath.Dir(env.Self), "cni"), "`DIR` of weft's own plugins, with --idle")
	for _, other := range []string{"designs", "tests", "n", "span", "starts", "seed"} {
		cmd.MarkFlagsMutuallyExclusive("idle", other)
	}
	output = printer.Flag(cmd.Flags(), printer.Text, printer.JSON)
	return cmd
}

// benchIdle measures an agent while VMs are idle.
func benchIdle(ctx context.Context, env ui.Env, cfg migration.IdleConfig, output *printer.Format) error {
	if err := cfg.Check(); err != nil {
		return ui.UsageError(err)
	}
	programs := filepath.Dir(env.Self)
	image, err := guestimage.DefaultConfig(programs)
	if err != nil {
		return err
	}
	image.Progress = func(format string, args ...any) { fmt.Fprintf(env.Stderr, format+"\n", args...) }
	if cfg.Image, err = image.Build(ctx); err != nil {
		return err
	}
	cfg.Agent, cfg.Speaker = agentProgram(env), filepath.Join(programs, "weft-guest")
	cfg.OnLease = func(n int, took time.Duration) {
		fmt.Fprintf(env.Stderr, "VM %d of %d has its lease after %.1f s\n", n+1, cfg.VMs, took.Seconds())
	}
	report, err := migration.RunIdle(ctx, cfg)
	if err != nil {
		return err
	}
	return printTable(env, output, report)
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
