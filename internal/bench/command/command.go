// SPDX-License-Identifier: Apache-2.0

// Package command is the command line of weft-bench.
package command

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/weft-net/weft/internal/bench"
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
	output      string
}

// Run runs the command line and returns the exit code. name is how the user has called it: the program's name, or a
// command of another program that executes this one.
func Run(ctx context.Context, name string, env ui.Env) int { return ui.Run(ctx, New(name, env), env) }

// New is the command line as users meet it.
func New(name string, env ui.Env) *cobra.Command {
	cmd := &cobra.Command{
		Use: "weft-bench", Annotations: map[string]string{cobra.CommandDisplayNameAnnotation: name},
		Short: "Measure weft and its peers, interleaved in one run",
	}
	cmd.AddCommand(newBenchCNICmd(env), newBenchNetworksCmd(env), newBenchShimCmd(env), newBenchMeshCmd(env),
		newBenchPathCmd(env), newBenchRepairCmd(env), newBenchIPAMCmd(env), newBenchPolicyCmd(env), newBenchVMCmd(env),
		newBenchMigrationCmd(env), newBenchPartCmd(env))
	return cmd
}

// agentProgram is the agent that is measured, beside this program.
func agentProgram(env ui.Env) string { return filepath.Join(filepath.Dir(env.Self), "weft-agent") }

func newBenchCNICmd(env ui.Env) *cobra.Command {
	var f benchFlags
	cmd := &cobra.Command{
		Use:   "cni --chain FILE",
		Short: "Measure ADD, CHECK and DEL of a configuration list",
		Long: `Measures ADD, CHECK and DEL of a configuration list through libcni: for each --peer-bin-dir ([NAME=]DIR), for weft's
standalone plugins and for weft's agent, interleaved in one run. Each has its own network namespace as node, so the
machine's own network is not touched. Times are what the caller waits; CPU is user and system time of all processes,
the agent's included (the kernel's softirq work is not counted); execs and syscalls come from a pass of its own under
strace. Needs root.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return runBenchCNI(cmd, env, f) },
	}
	fl := cmd.Flags()
	fl.StringVar(&f.chain, "chain", "", "configuration list to measure (required)")
	fl.StringArrayVar(&f.peers, "peer-bin-dir", nil, "[NAME=]DIR of a peer's plugins; may be given several times")
	fl.StringVar(&f.binDir, "bin-dir", filepath.Join(filepath.Dir(env.Self), "cni"), "directory of weft's own plugins")
	fl.StringSliceVar(&f.impls, "weft", []string{"standalone", "agent"}, "forms of weft to measure")
	fl.IntVarP(&f.n, "n", "n", 100, "samples in each cell")
	fl.IntSliceVar(&f.concurrency, "concurrency", []int{1, 8, 32}, "calls at a time")
	fl.IntSliceVar(&f.pods, "pods", []int{10}, "attachments present while measuring")
	fl.Uint64Var(&f.seed, "seed", 1, "seed of the order in which implementations take turns")
	fl.BoolVar(&f.noTrace, "no-trace", false, "leave out the pass that counts syscalls")
	fl.StringVarP(&f.output, "output", "o", "text", "text or json")
	return cmd
}

// check refuses at once what would otherwise come out in the middle of the run, or after it.
func (f benchFlags) check() error {
	if err := ui.TextOrJSON(f.output); err != nil {
		return err
	}
	for _, c := range f.concurrency {
		if c < 1 {
			return ui.UsageError(model.Faultf(model.CodeInvalidConf, "give 1 or more", "--concurrency %d calls at a time", c))
		}
	}
	for _, n := range f.pods {
		if n < 0 {
			return ui.UsageError(model.Faultf(model.CodeInvalidConf, "give 0 or more", "--pods %d", n))
		}
	}
	if f.chain == "" {
		return ui.UsageError(model.Faultf(model.CodeInvalidConf, "name a configuration list", "--chain is missing"))
	}
	return nil
}

// readChain reads the configuration list to measure, and says what is doubtful about it.
func readChain(env ui.Env, file string) (bench.Chain, error) {
	b, err := os.ReadFile(file)
	if err != nil {
		return bench.Chain{}, model.Faultf(model.CodeIO, "name a configuration list", "--chain: %w", err)
	}
	report := cni.Examine(b, plugin.Builtin(), builtin.Readers(os.ReadFile))
	for _, p := range report.Errors {
		return bench.Chain{}, model.Faultf(p.Code, p.Hint, "--chain %s: %s", file, cni.Problem{Where: p.Where, Msg: p.Msg})
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
	cfg := bench.Config{
		Chain: chain, Impls: impls, N: f.n, Concurrency: f.concurrency, Pods: f.pods, Seed: f.seed,
		Log: slog.New(slog.NewTextHandler(env.Stderr, nil)),
	}
	if !f.noTrace {
		cfg.Strace, _ = exec.LookPath("strace")
		cfg.Empty = filepath.Join(filepath.Dir(env.Self), "bench-empty")
		if _, err := os.Stat(cfg.Empty); err != nil {
			cfg.Empty = ""
		}
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
		Short: "Measure pods with several networks",
		Long: `Measures ADD, CHECK and DEL of pods that have macvlan networks beside the first one, which is the chain:
through weft's agent under Multus' name, and with each --peer-bin-dir, whose plugins are executed network by
network, as Multus does. Multus itself (thin) would add 12 to 14 ms of CPU to a peer's ADD and DEL. All numbers of
networks take turns in one run. Needs root.`,
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
				Chain: chain, Impls: impls, Networks: networks, N: f.n, Concurrency: f.concurrency, Pods: pods, Seed: f.seed,
				Log: slog.New(slog.NewTextHandler(env.Stderr, nil)),
			})
			if err != nil {
				return err
			}
			return printReport(env, f.output, report)
		},
	}
	fl := cmd.Flags()
	fl.StringVar(&f.chain, "chain", "", "configuration list of the first network (required)")
	fl.IntSliceVar(&networks, "networks", []int{1, 3, 8}, "macvlan networks beside the first")
	fl.StringArrayVar(&f.peers, "peer-bin-dir", nil, "[NAME=]DIR of a peer's plugins; may be given several times")
	fl.StringVar(&f.binDir, "bin-dir", filepath.Join(filepath.Dir(env.Self), "cni"), "directory of weft's own plugins")
	fl.IntVarP(&f.n, "n", "n", 100, "samples in each cell")
	fl.IntSliceVar(&f.concurrency, "concurrency", []int{1, 8}, "pods at a time")
	fl.IntVar(&pods, "pods", 10, "pods present while measuring")
	fl.Uint64Var(&f.seed, "seed", 1, "seed of the order in which implementations take turns")
	fl.StringVarP(&f.output, "output", "o", "text", "text or json")
	return cmd
}

func newBenchShimCmd(env ui.Env) *cobra.Command {
	var f benchFlags
	cmd := &cobra.Command{
		Use:   "shim",
		Short: "Measure weft-cni's whole run against an agent that answers at once, beside an empty static Go program",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := ui.TextOrJSON(f.output); err != nil {
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
	fl.StringVar(&f.binDir, "bin-dir", filepath.Join(filepath.Dir(env.Self), "cni"), "directory of weft's own plugins")
	fl.IntVarP(&f.n, "n", "n", 500, "runs of each program")
	fl.Uint64Var(&f.seed, "seed", 1, "seed of the order in which the programs take turns")
	fl.StringVarP(&f.output, "output", "o", "text", "text or json")
	return cmd
}

func printReport(env ui.Env, output string, report bench.Report) error {
	if output == "text" {
		return report.Text(env.Stdout)
	}
	enc := json.NewEncoder(env.Stdout)
	enc.SetIndent("", "  ")
	return enc.Encode(report)
}
