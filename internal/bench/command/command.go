// SPDX-License-Identifier: Apache-2.0

// Package command is the command line of weft-bench.
package command

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/weft-net/weft/internal/bench"
	"github.com/weft-net/weft/internal/cli/printer"
	"github.com/weft-net/weft/internal/cli/ui"
	"github.com/weft-net/weft/internal/cni"
	"github.com/weft-net/weft/internal/ipam/builtin"
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/plan/plugin"
)

type benchFlags struct {
	chain       string
	peers       []string
	binDir      string
	impls       []string
	n           int
	concurrency []int
	pods        []int
	seed        uint64
	noTrace     bool
	output      *printer.Format
}

// Run runs the command line and returns the exit code. name is the displayed name: the program's name, or the command
// of another program that executes this one.
func Run(ctx context.Context, name string, env ui.Env) int { return ui.Run(ctx, New(name, env), env) }

// New returns the root command.
func New(name string, env ui.Env) *cobra.Command {
	cmd := &cobra.Command{
		Use: "weft-bench", Annotations: map[string]string{cobra.CommandDisplayNameAnnotation: name},
		Short: "Measure weft and its peers, interleaved in one run",
		Long: `Measures weft and other implementations on this host, in temporary network namespaces; the host's network is not
changed. The measurements of all implementations are interleaved in one run, so that the load of the host affects all
of them alike. Most commands need root.`,
		Example: "  weft bench shim\n  weft bench mesh --peers 100,1000 -n 3\n  weft bench repair --pods 50 --idle 0s",
	}
	cmd.AddCommand(newBenchCNICmd(env), newBenchNetworksCmd(env), newBenchShimCmd(env), newBenchMeshCmd(env),
		newBenchPathCmd(env), newBenchTraceCmd(env), newBenchRepairCmd(env), newBenchIPAMCmd(env),
		newBenchPolicyCmd(env), newBenchObserveCmd(env), newBenchVMCmd(env),
		newBenchMigrationCmd(env), newBenchReportCmd(env), newBenchPartCmd(env))
	return cmd
}

// agentProgram returns the path of weft-agent, in the directory of this program.
func agentProgram(env ui.Env) string { return filepath.Join(filepath.Dir(env.Self), "weft-agent") }

func newBenchCNICmd(env ui.Env) *cobra.Command {
	var f benchFlags
	cmd := &cobra.Command{
		Use:   "cni --chain FILE",
		Short: "Measure ADD, CHECK and DEL of a configuration list",
		Long: `Measures ADD, CHECK and DEL of a configuration list through libcni: for each --peer-bin-dir ([NAME=]DIR), for weft's
standalone plugins and for weft's agent, interleaved in one run. Each runs in its own network namespace; the host's
network is not changed. Times are latencies as the caller sees them; CPU is user and system time of all processes,
including the agent (softirq time is not counted); execs and syscalls are counted in a separate pass under strace.
In addition to weft its floors are measured, which show what no change of weft can gain on this host: floor-agent is
weft-cni with an agent that only makes the pod's links, addresses, routes and rate limits, in one batch for each
namespace; floor-standalone starts an empty Go program in the place of each plugin. Needs root.`,
		Example: "  weft bench cni --chain test/chains/ptp4.conflist --weft agent --pods 100\n" +
			"  weft bench cni --chain test/chains/ptp4.conflist --peer-bin-dir /opt/cni/bin -n 60 --concurrency 1",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return runBenchCNI(cmd, env, f) },
	}
	fl := cmd.Flags()
	fl.StringVar(&f.chain, "chain", "", "`FILE` of the configuration list to measure (required)")
	fl.StringArrayVar(&f.peers, "peer-bin-dir", nil, "`[NAME=]DIR` of a peer's plugins; repeatable")
	fl.StringVar(&f.binDir, "bin-dir", filepath.Join(filepath.Dir(env.Self), "cni"), "`DIR` of weft's own plugins")
	fl.StringSliceVar(&f.impls, "weft", []string{"standalone", "agent"}, "`FORM` of weft to measure: standalone or agent; several, separated by commas")
	fl.IntVarP(&f.n, "n", "n", 100, "`COUNT` of samples per cell")
	fl.IntSliceVar(&f.concurrency, "concurrency", []int{1, 8, 32}, "`COUNT` of concurrent calls; several, separated by commas")
	fl.IntSliceVar(&f.pods, "pods", []int{10}, "`COUNT` of attachments present while measuring; several, separated by commas")
	fl.Uint64Var(&f.seed, "seed", 1, "`SEED` for the order of implementations")
	fl.BoolVar(&f.noTrace, "no-trace", false, "skip the pass that counts syscalls")
	f.output = printer.Flag(cmd.Flags(), printer.Text, printer.JSON)
	return cmd
}

// emptyProgram returns the empty program in the directory of this program, or "" if there is none.
func emptyProgram(env ui.Env) string {
	file := filepath.Join(filepath.Dir(env.Self), "bench-empty")
	if _, err := os.Stat(file); err != nil {
		return ""
	}
	return file
}

// check validates the flags before the run.
func (f benchFlags) check() error {
	if err := cmp.Or(samples(f.n)); err != nil {
		return err
	}
	for _, c := range f.concurrency {
		if c < 1 {
			return ui.UsageError(model.OutOfRange("--concurrency", c, "1 or more", "1,8"))
		}
	}
	for _, n := range f.pods {
		if n < 0 {
			return ui.UsageError(model.OutOfRange("--pods", n, "0 or more", 10))
		}
	}
	if f.chain == "" {
		return ui.Misusef("add --chain /etc/cni/net.d/00-weft.conflist", "--chain is missing")
	}
	return nil
}

// samples validates the number of samples.
func samples(n int) error {
	if n < 1 {
		return ui.UsageError(model.OutOfRange("-n", n, "1 or more", 100))
	}
	return nil
}

// readChain reads and validates the configuration list to measure, and prints warnings.
func readChain(env ui.Env, file string) (bench.Chain, error) {
	b, err := os.ReadFile(file)
	if err != nil {
		return bench.Chain{}, ui.FileError("for example --chain /etc/cni/net.d/00-weft.conflist", "--chain", file, err)
	}
	report := cni.Examine(b, plugin.Builtin(), builtin.Readers(os.ReadFile))
	for _, p := range report.Errors {
		return bench.Chain{}, model.Errorf(p.Code, p.Hint, "--chain %s: %s", file, cni.Problem{Where: p.Where, Msg: p.Msg})
	}
	for _, w := range report.Warnings {
		fmt.Fprintf(env.Stderr, "weft: warning: --chain %s: %s\n", file, w)
	}
	return bench.ParseChain(file, b)
}

func runBenchCNI(cmd *cobra.Command, env ui.Env, f benchFlags) error {
	if err := f.check(); err != nil {
		return err
	}
	chain, err := readChain(env, f.chain)
	if err != nil {
		return err
	}
	impls, err := bench.Impls(f.peers, f.impls, f.binDir, agentProgram(env))
	if err != nil {
		return err
	}
	empty := emptyProgram(env)
	cfg := bench.Config{
		Chain: chain, Impls: bench.WithFloors(impls, chain, empty), N: f.n, Empty: empty, Concurrency: f.concurrency, Pods: f.pods, Seed: f.seed,
		Log: slog.New(slog.NewTextHandler(env.Stderr, nil)),
	}
	if !f.noTrace {
		cfg.Strace, _ = exec.LookPath("strace")
	}
	report, err := bench.Run(cmd.Context(), cfg)
	if err != nil {
		return err
	}
	return printReport(env, f.output, report)
}

func newBenchNetworksCmd(env ui.Env) *cobra.Command {
	var f benchFlags
	var networks []int
	var pods int
	cmd := &cobra.Command{
		Use:   "networks --chain FILE",
		Short: "Measure pods with multiple networks",
		Long: `Measures ADD, CHECK and DEL of pods with additional macvlan networks; the primary network is the chain. weft's agent is
called by the plugin type multus; the plugins of each --peer-bin-dir are executed network by network, as Multus does.
Multus itself (thin plugin) would add 12 to 14 ms of CPU to a peer's ADD and DEL. The numbers of networks are
interleaved in one run. floor-agent is as in bench cni, with the additional networks' links. Needs root.`,
		Example: "  weft bench networks --chain test/chains/ptp4.conflist\n" +
			"  weft bench networks --chain test/chains/ptp4.conflist --peer-bin-dir /opt/cni/bin --networks 1,8 -n 30",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			f.pods = []int{pods}
			if err := f.check(); err != nil {
				return err
			}
			chain, err := readChain(env, f.chain)
			if err != nil {
				return err
			}
			impls, err := bench.Impls(f.peers, []string{"agent"}, f.binDir, agentProgram(env))
			if err != nil {
				return err
			}
			report, err := bench.Networks(cmd.Context(), bench.NetworksConfig{
				Chain: chain, Impls: bench.WithFloors(impls, chain, ""), Networks: networks, N: f.n, Concurrency: f.concurrency, Pods: pods, Seed: f.seed,
				Log: slog.New(slog.NewTextHandler(env.Stderr, nil)),
			})
			if err != nil {
				return err
			}
			return printReport(env, f.output, report)
		},
	}
	fl := cmd.Flags()
	fl.StringVar(&f.chain, "chain", "", "`FILE` of the primary network's configuration list (required)")
	fl.IntSliceVar(&networks, "networks", []int{1, 3, 8}, "`COUNT` of additional macvlan networks; several, separated by commas")
	fl.StringArrayVar(&f.peers, "peer-bin-dir", nil, "`[NAME=]DIR` of a peer's plugins; repeatable")
	fl.StringVar(&f.binDir, "bin-dir", filepath.Join(filepath.Dir(env.Self), "cni"), "`DIR` of weft's own plugins")
	fl.IntVarP(&f.n, "n", "n", 100, "`COUNT` of samples per cell")
	fl.IntSliceVar(&f.concurrency, "concurrency", []int{1, 8}, "`COUNT` of concurrent pods; several, separated by commas")
	fl.IntVar(&pods, "pods", 10, "`COUNT` of pods present while measuring")
	fl.Uint64Var(&f.seed, "seed", 1, "`SEED` for the order of implementations")
	f.output = printer.Flag(cmd.Flags(), printer.Text, printer.JSON)
	return cmd
}

func newBenchShimCmd(env ui.Env) *cobra.Command {
	var f benchFlags
	cmd := &cobra.Command{
		Use:   "shim",
		Short: "Measure weft-cni with an agent that responds immediately, compared with an empty static Go program",
		Long: `Executes weft-cni, which forwards each CNI call to the agent, and an empty static Go program in a random order, and
reports times, CPU time and memory of both. The difference is the cost of weft-cni itself. It needs neither root nor an
agent: this program answers the calls.`,
		Example: "  weft bench shim\n" +
			"  weft bench shim -n 2000 -o json",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := cmp.Or(samples(f.n)); err != nil {
				return err
			}
			report, err := bench.Shim(cmd.Context(), bench.ShimConfig{
				Shim: filepath.Join(f.binDir, "weft-cni"), Empty: filepath.Join(filepath.Dir(env.Self), "bench-empty"), N: f.n,
				Seed: f.seed,
			})
			if err != nil {
				return err
			}
			return printReport(env, f.output, report)
		},
	}
	fl := cmd.Flags()
	fl.StringVar(&f.binDir, "bin-dir", filepath.Join(filepath.Dir(env.Self), "cni"), "`DIR` of weft's own plugins")
	fl.IntVarP(&f.n, "n", "n", 500, "`COUNT` of runs of each program")
	fl.Uint64Var(&f.seed, "seed", 1, "`SEED` for the order of programs")
	f.output = printer.Flag(cmd.Flags(), printer.Text, printer.JSON)
	return cmd
}

func printReport(env ui.Env, output *printer.Format, report bench.Report) error {
	if !output.Document() {
		return report.Text(env.Stdout)
	}
	return output.Print(env.Stdout, report)
}
