// SPDX-License-Identifier: Apache-2.0

// Package command is the command line of cni-conformance.
package command

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/weft-net/weft/internal/cli/ui"
	"github.com/weft-net/weft/internal/conformance"
	"github.com/weft-net/weft/internal/model"
)

type flags struct {
	cfg      conformance.Config
	output   string
	list     string // file of a configuration list
	junit    string // file
	markdown []string
	runtime  bool
	quiet    bool
	text     []byte // of the list
}

// weftProgram is the name of the program whose callers --runtime tests, in the directory of this one.
const weftProgram = "weft"

// Run runs the command line and returns the exit code. name is the displayed name: the program's name, or the command
// of another program that executes this one.
func Run(ctx context.Context, name string, env ui.Env) int {
	return ui.Run(ctx, New(name, env), env)
}

// New returns the root command.
func New(name string, env ui.Env) *cobra.Command {
	var f flags
	cmd := &cobra.Command{
		Use:         "cni-conformance --bin-dir DIR",
		Annotations: map[string]string{cobra.CommandDisplayNameAnnotation: name},
		Short:       "Check CNI plugins of any vendor against the specification",
		Long: "Executes the plugins of a directory as a runtime would, in temporary namespaces with their own /run and /var/lib,\n" +
			"and inspects the kernel independently. Prints a row for each item of the checklist and each plugin: pass, fail with\n" +
			"what was seen, not supported by this kernel, or not applicable with the reason. With --conflist the plugins of that\n" +
			"list are tested with its configuration, whatever their types are. With --runtime the items of the runtime are tested\n" +
			"on weft's callers (weft cni, the agent), with recording plugins. Exits with 0 if no required item (must) failed, and\n" +
			"with 1 otherwise.",
		Example: "  " + name + " --bin-dir /opt/cni/bin\n  " + name +
			" --bin-dir /opt/cni/bin --conflist /etc/cni/net.d/10-vendor.conflist --junit report.xml",
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 0 {
				return ui.Misusef("for example `weft conformance --bin-dir /opt/cni/bin`", "unexpected argument %q", args[0])
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, _ []string) error {
			if cmd.Flags().Changed("only") && len(f.cfg.Only) == 0 {
				return ui.Misusef("for example --only bridge, or leave it out", "--only has no value")
			}
			if len(f.markdown) > 0 {
				for _, name := range []string{"bin-dir", "output", "conflist", "junit"} {
					if cmd.Flags().Changed(name) {
						return ui.Misusef("leave out --"+name, "--%s has no effect with --markdown", name)
					}
				}
				return f.table(cmd.Context(), env)
			}
			if err := f.readList(env); err != nil {
				return ui.UsageError(err)
			}
			if err := f.check(); err != nil {
				return ui.UsageError(err)
			}
			if env.Getenv(conformance.Inside) != "" {
				return f.inside(cmd.Context(), env)
			}
			return f.report(cmd.Context(), env)
		},
	}
	fl := cmd.Flags()
	fl.StringVar(&f.cfg.BinDir, "bin-dir", "", "`DIR` of the plugins (often /opt/cni/bin or /usr/lib/cni)")
	fl.StringVar(&f.list, "conflist", "",
		"`FILE` of a configuration list (- is standard input) whose plugins are tested with its configuration")
	fl.StringVar(&f.junit, "junit", "", "also write a JUnit report to `FILE`")
	fl.StringSliceVar(&f.cfg.Only, "only", nil, "only this `PLUGIN`; several, separated by commas")
	fl.IntSliceVar(
		&f.cfg.Items,
		"item",
		nil,
		"only the item of the checklist with this `NUMBER`; several, separated by commas",
	)
	fl.DurationVar(&f.cfg.Timeout, "timeout", 30*time.Second, "`DURATION` after which a call of a plugin fails, 1s to 10m")
	fl.BoolVar(&f.runtime, "runtime", false, "also test weft's callers on the runtime's items")
	fl.BoolVar(&f.quiet, "quiet", false, "do not print progress")
	fl.StringArrayVar(&f.markdown, "markdown", nil,
		"`NAME=DIR` of a vendor's plugins; repeatable: print one table of all vendors, in Markdown")
	fl.StringVarP(&f.output, "output", "o", "text", "output `FORMAT`: text or json")
	return cmd
}

// check validates the flags.
func (f *flags) check() error {
	if f.cfg.BinDir == "" {
		return ui.Misusef("add the directory of the plugins, often --bin-dir /opt/cni/bin", "--bin-dir is missing")
	}
	if f.output != "text" && f.output != "json" {
		return ui.Misusef("for example -o json", "--output %q is not text or json", f.output)
	}
	if f.cfg.Timeout < time.Second || f.cfg.Timeout > 10*time.Minute {
		return ui.Misusef("for example --timeout 30s", "--timeout %v is out of range: 1s to 10m", f.cfg.Timeout)
	}
	for _, n := range f.cfg.Items {
		if n < 1 || n > len(conformance.Items()) {
			return model.OutOfRange("--item", n, fmt.Sprintf("1 to %d", len(conformance.Items())), 1)
		}
	}
	present, err := conformance.Present(f.cfg.BinDir)
	if err != nil {
		return ui.FileError("for example --bin-dir /opt/cni/bin", "--bin-dir", f.cfg.BinDir, err)
	}
	known := conformance.Types()
	if f.cfg.List != nil {
		known, present = f.cfg.List.Types(), nil
		for _, typ := range known {
			if _, err := os.Stat(filepath.Join(f.cfg.BinDir, typ)); err != nil {
				return ui.Misusef("name the directory of its plugins with --bin-dir",
					"--conflist %q: plugin %q: %s has no such program", f.list, typ, f.cfg.BinDir)
			}
			present = append(present, typ)
		}
	}
	for _, typ := range f.cfg.Only {
		if !slices.Contains(known, typ) {
			return model.NotOneOf("--only", typ, known...)
		}
		if !slices.Contains(present, typ) {
			return ui.Misusef("name the directory that has it with --bin-dir", "--only %q: %s has no such program",
				typ, f.cfg.BinDir)
		}
	}
	if len(present) == 0 {
		return ui.Misusef("for example --bin-dir /opt/cni/bin",
			"--bin-dir %q has none of the plugins that can be tested without --conflist: %s", f.cfg.BinDir,
			strings.Join(known, ", "))
	}
	return nil
}

// args returns the flags for the program inside the namespaces.
func (f *flags) args(dir string) ([]string, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	args := []string{
		"--bin-dir", dir, "--timeout", f.cfg.Timeout.String(), fmt.Sprintf("--runtime=%v", f.runtime),
		fmt.Sprintf("--quiet=%v", f.quiet), "-o", "json",
	}
	if f.list != "" {
		args = append(args, "--conflist", "-") // the file may be hidden inside the namespaces
	}
	if len(f.cfg.Only) > 0 {
		args = append(args, "--only", strings.Join(f.cfg.Only, ","))
	}
	for _, n := range f.cfg.Items {
		args = append(args, "--item", fmt.Sprint(n))
	}
	return args, nil
}

// readList reads the configuration list, if there is one.
func (f *flags) readList(env ui.Env) error {
	if f.list == "" {
		return nil
	}
	var err error
	if f.text, err = ui.ReadConf(env, f.list); err != nil {
		return err
	}
	f.cfg.List, err = conformance.ParseList(f.text)
	return err
}

// report runs the checks and prints the report.
func (f *flags) report(ctx context.Context, env ui.Env) error {
	f.quiet = f.quiet || f.output == "json"
	report, err := f.runInside(ctx, env)
	if err != nil {
		return err
	}
	if f.output == "json" {
		err = ui.PrintJSON(env.Stdout, report)
	} else {
		err = report.Text(env.Stdout)
	}
	if f.junit != "" && err == nil {
		err = f.writeJUnit(report)
	}
	if _, required := report.Failures(); err == nil && required > 0 {
		return ui.Exit(ui.Bad)
	}
	return err
}

func (f *flags) writeJUnit(report *conformance.Report) error {
	var b bytes.Buffer
	if err := report.JUnit(&b); err != nil {
		return err
	}
	if err := os.WriteFile(f.junit, b.Bytes(), 0o644); err != nil {
		return model.Errorf(model.CodeIO, "name a file that can be written", "--junit: %w", err)
	}
	return nil
}

// runInside runs this program in new namespaces and parses its report.
func (f *flags) runInside(ctx context.Context, env ui.Env) (*conformance.Report, error) {
	args, err := f.args(f.cfg.BinDir)
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	cmd := conformance.Command(ctx, env.Self, args...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(f.text), &out, env.Stderr
	err = cmd.Run()
	var exit *exec.ExitError
	if errors.As(err, &exit) && exit.ExitCode() > 0 {
		return nil, ui.Exit(exit.ExitCode()) // it has printed the error
	}
	if err != nil {
		return nil, fmt.Errorf("namespaces for the plugins: %w", err)
	}
	report := &conformance.Report{}
	if err := json.Unmarshal(out.Bytes(), report); err != nil {
		return nil, fmt.Errorf("report of %s: %w", f.cfg.BinDir, err)
	}
	return report, nil
}

// inside runs the checks in the namespaces and prints the report for the program outside.
func (f *flags) inside(ctx context.Context, env ui.Env) error {
	if f.runtime {
		f.cfg.Weft = filepath.Join(filepath.Dir(env.Self), weftProgram)
	}
	weft, err := conformance.Enter(f.cfg)
	if err != nil {
		return err
	}
	f.cfg.Weft = weft
	if !f.quiet {
		f.cfg.Progress = func(subject string) { fmt.Fprintf(env.Stderr, "weft: testing %s\n", subject) }
	}
	report, err := conformance.Run(ctx, f.cfg)
	if err != nil {
		return err
	}
	return ui.PrintJSON(env.Stdout, report)
}

// table tests the plugins of each vendor and prints one table.
func (f *flags) table(ctx context.Context, env ui.Env) error {
	var columns []conformance.Column
	for i, m := range f.markdown {
		name, dir, ok := strings.Cut(m, "=")
		if !ok || name == "" || dir == "" {
			return ui.Misusef("for example --markdown weft=/opt/cni/bin", "--markdown %q is not NAME=DIR", m)
		}
		one := *f
		one.cfg.BinDir, one.quiet = dir, true
		one.runtime = f.runtime && i == 0 // the callers do not depend on the vendor
		if err := one.check(); err != nil {
			return ui.UsageError(err)
		}
		fmt.Fprintf(env.Stderr, "weft: testing %s\n", dir)
		report, err := one.runInside(ctx, env)
		if err != nil {
			return err
		}
		columns = append(columns, conformance.Column{Name: name, Report: report})
	}
	return conformance.Markdown(env.Stdout, columns)
}
