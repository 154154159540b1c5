// SPDX-License-Identifier: Apache-2.0

package command

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/weft-net/weft/internal/atomicfile"
	"github.com/weft-net/weft/internal/bench"
	"github.com/weft-net/weft/internal/bench/path"
	"github.com/weft-net/weft/internal/bench/policy"
	"github.com/weft-net/weft/internal/bench/summary"
	"github.com/weft-net/weft/internal/cli/printer"
	"github.com/weft-net/weft/internal/cli/ui"
	"github.com/weft-net/weft/internal/model"
)

// reportFlags are the flags of weft bench report.
type reportFlags struct {
	chains, peers []string
	binDir        string
	quick         bool
	svg, from     string
	markdown      bool
	output        *printer.Format
}

func newBenchReportCmd(env ui.Env) *cobra.Command {
	var f reportFlags
	cmd := &cobra.Command{
		Use:   "report",
		Short: "Run the measurements and print one table, with limits, and a chart",
		Long: `Runs shim, cni and networks with each --chain, mesh, path (also with the fast path and policies), policy and repair one
after the other, and prints one table of the figures that the project has limits for: weft, its peer, the ratio with
its spread, the limit and the number of samples. Above the tables of ADD is what an empty Go program takes on this
host; limits of times count only where that is at most 1.5 ms. A measurement that fails is left out with a note. Takes
about an hour, with --quick some minutes. Needs root; the host's network is not changed.

Keys of -o json: host, empty, rows [{group, name, unit, n, weft, peer, peerName, ratio, low, high, limit, atLeast,
counted}], notes.`,
		Example: "  weft bench report --quick --svg report.svg\n" +
			"  weft bench report --chain test/chains/pod.conflist --peer-bin-dir /opt/cni/bin -o json",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return runReport(cmd.Context(), env, f) },
	}
	fl := cmd.Flags()
	fl.StringArrayVar(&f.chains, "chain", nil, "`FILE` of a configuration list to measure; repeatable (default: ADD and DEL are not measured)")
	fl.StringArrayVar(&f.peers, "peer-bin-dir", nil, "`[NAME=]DIR` of a peer's plugins; repeatable")
	fl.StringVar(&f.binDir, "bin-dir", filepath.Join(filepath.Dir(env.Self), "cni"), "`DIR` of weft's own plugins")
	fl.BoolVar(&f.quick, "quick", false, "few samples of small clusters, in some minutes")
	fl.StringVar(&f.svg, "svg", "", "`FILE` to which the chart is written")
	fl.StringVar(&f.from, "from", "", "`FILE` of an earlier report (-o json) to print and draw, instead of measuring")
	fl.BoolVar(&f.markdown, "markdown", false, "print tables of Markdown")
	f.output = printer.Flag(fl, printer.Text, printer.JSON)
	return cmd
}

func runReport(ctx context.Context, env ui.Env, f reportFlags) error {
	var report summary.Report
	if f.from != "" {
		b, err := os.ReadFile(f.from)
		if err != nil {
			return ui.FileError("for example --from report.json", "--from", f.from, err)
		}
		if err := json.Unmarshal(b, &report); err != nil {
			return model.Errorf(model.CodeDecode, "write it with weft bench report -o json", "--from %s: %w", f.from, err)
		}
	} else {
		chains := make([]bench.Chain, 0, len(f.chains))
		for _, file := range f.chains { // a wrong file is found before an hour of measuring
			chain, err := readChain(env, file)
			if err != nil {
				return err
			}
			chains = append(chains, chain)
		}
		var err error
		if report, err = f.measure(ctx, env, chains); err != nil {
			return err
		}
	}
	if f.svg != "" {
		if err := atomicfile.Write(f.svg, report.SVG(), 0o644, atomicfile.CrashSafe); err != nil {
			return model.Errorf(model.CodeIO, "choose a writable directory", "--svg %s: %w", f.svg, err)
		}
	}
	if f.markdown {
		return report.Markdown(env.Stdout)
	}
	return printTable(env, f.output, report)
}

// measure runs the measurements. Those that fail are in the notes; the error is that of ctx.
func (f reportFlags) measure(ctx context.Context, env ui.Env, chains []bench.Chain) (summary.Report, error) {
	log := slog.New(slog.NewTextHandler(env.Stderr, nil))
	report := summary.Report{Host: host(), Rows: []summary.Row{}, Notes: []string{}}
	// pick returns the value for a whole run, or for a quick one.
	pick := func(whole, quick int) int {
		if f.quick {
			return quick
		}
		return whole
	}
	steps := []struct {
		name string
		run  func() error
	}{
		{"shim", func() error {
			in, err := bench.Shim(ctx, bench.ShimConfig{
				Shim: filepath.Join(f.binDir, "weft-cni"), Empty: filepath.Join(filepath.Dir(env.Self), "bench-empty"),
				N: pick(500, 50), Seed: 1,
			})
			report.AddShim(in)
			return err
		}},
	}
	add := func(name string, run func() error) {
		steps = append(steps, struct {
			name string
			run  func() error
		}{name, run})
	}
	for _, chain := range chains {
		add("cni "+chain.Name, func() error {
			impls, err := bench.Impls(f.peers, []string{"standalone", "agent"}, f.binDir, agentProgram(env))
			if err != nil {
				return err
			}
			empty := emptyProgram(env)
			cfg := bench.Config{
				Chain: chain, Impls: bench.WithFloors(impls, chain, empty), N: pick(100, 10), Concurrency: []int{1, 8},
				Pods: []int{pick(10, 2)}, Seed: 1, Log: log, Empty: empty,
			}
			cfg.Strace, _ = exec.LookPath("strace")
			in, err := bench.Run(ctx, cfg)
			report.AddCalls(in)
			return err
		})
		add("networks of "+chain.Name, func() error {
			impls, err := bench.Impls(nil, []string{"agent"}, f.binDir, agentProgram(env))
			if err != nil {
				return err
			}
			const more = 7
			in, err := bench.Networks(ctx, bench.NetworksConfig{
				Chain: chain, Impls: bench.WithFloors(impls, chain, ""), Networks: []int{0, more}, N: pick(100, 10),
				Concurrency: []int{1}, Pods: pick(10, 2), Seed: 1, Log: log,
			})
			report.AddNetworks(in, chain.Name, more)
			return err
		})
	}
	add("mesh", func() error {
		in, err := bench.Mesh(ctx, bench.MeshConfig{
			Peers: []int{pick(10_000, 1000)}, Backends: []string{"host-gw", "vxlan"}, N: pick(15, 3), Changes: pick(10_000, 1000),
			Seed: 1, Log: log,
		})
		report.AddMesh(in)
		return err
	})
	add("path", func() error {
		in, err := path.Run(ctx, path.Config{
			Backends: []string{"host-gw", "vxlan"}, N: pick(15, 3), Span: time.Duration(pick(300, 50)) * time.Millisecond, Seed: 1,
			Self: env.Self, BinDir: f.binDir, Log: log,
		})
		report.AddPath(in)
		return err
	})
	add("path with policies", func() error {
		in, err := path.Run(ctx, path.Config{
			Backends: []string{"host-gw", "vxlan"}, N: pick(15, 3), Span: time.Duration(pick(300, 50)) * time.Millisecond, Seed: 1,
			FastPath: true, Policies: pick(1000, 100), Self: env.Self, BinDir: f.binDir, Log: log,
		})
		in.Rows = slices.DeleteFunc(in.Rows, func(x path.Row) bool { return x.Slow == 0 && x.Unselected == 0 })
		in.Notes = nil // the rows without both, and the notes, are those of path
		report.AddPath(in)
		return err
	})
	add("policy", func() error {
		cfg := policy.Config{
			Engines: []string{"routed", "weft"}, Policies: []int{0, 1, pick(1000, 100)}, Peers: []int{0, pick(10_000, 1000)},
			N: pick(15, 3), Span: time.Duration(pick(150, 50)) * time.Millisecond, Seed: 1, Self: env.Self, Log: log,
		}
		if err := cfg.Check(); err != nil {
			return err
		}
		in, err := policy.Run(ctx, cfg)
		report.AddPolicy(in)
		return err
	})
	add("repair", func() error {
		in, err := bench.Repair(ctx, bench.RepairConfig{
			Agent: agentProgram(env), BinDir: f.binDir, Pods: pick(250, 10), N: pick(50, 5), Seed: 1, Log: log,
		})
		report.AddRepair(in)
		return err
	})
	for _, step := range steps {
		log.Info("measuring", "what", step.name)
		if err := step.run(); err != nil || ctx.Err() != nil {
			if ctx.Err() != nil {
				return report, ctx.Err()
			}
			report.Notes = append(report.Notes, fmt.Sprintf("%s was not measured: %v", step.name, err))
		}
	}
	report.Sort()
	if len(chains) == 0 {
		report.Notes = append(report.Notes, "ADD and DEL were not measured: no --chain")
	}
	return report, nil
}

// host describes this host.
func host() string {
	var u unix.Utsname
	release := "unknown"
	if unix.Uname(&u) == nil {
		release = string(bytes.TrimRight(u.Release[:], "\x00"))
	}
	return fmt.Sprintf("%d processors, Linux %s", runtime.NumCPU(), cmp.Or(release, "unknown"))
}
