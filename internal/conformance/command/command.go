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

// weftProgram is the name of the program whose caller --runtime judges; it lies beside this one.
const weftProgram = "weft"

// Run runs the command line and returns the exit code. name is how the user has called it: the program's name, or a
// command of another program that executes this one.
func Run(ctx context.Context, name string, env ui.Env) int {
	return ui.Run(ctx, New(name, env), env)
}

// New is the command line as users meet it.
func New(name string, env ui.Env) *cobra.Command {
	var f flags
	cmd := &cobra.Command{
		Use:         "cni-conformance --bin-dir DIR",
		Annotations: map[string]string{cobra.CommandDisplayNameAnnotation: name},
		Short:       "Judge CNI plugins of any vendor by the words of the specification",
		Long: "Executes the plugins of a directory as a runtime would, in throw-away namespaces with their own /run and /var/lib,\n" +
			"and looks at the kernel with readers of its own. Prints a row for each item of the checklist and each plugin: pass,\n" +
			"fail with what was seen, not supported by this kernel, or not applicable with the reason. With --conflist the plugins\n" +
			"of that list are judged as it configures them, whatever their types are. With --runtime the items of the runtime's\n" +
			"side are judged on weft's own caller (weft cni), with recording plugins. Exits with 0 when nothing failed that the\n" +
			"specification demands (must), and with 1 when something did.",
		Example: "  " + name + " --bin-dir /opt/cni/bin\n  " + name +
			" --bin-dir /opt/cni/bin --conflist /etc/cni/net.d/10-vendor.conflist --junit report.xml",
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 0 {
				return ui.UsageError(fmt.Errorf("%q: conformance has flags, no arguments", args[0]))
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, _ []string) error {
			if cmd.Flags().Changed("only") && len(f.cfg.Only) == 0 {
				return ui.UsageError(errors.New("--only is empty: name plugins, or leave it out"))
			}
			if len(f.markdown) > 0 {
				for _, name := range []string{"bin-dir", "output", "conflist", "junit"} {
					if cmd.Flags().Changed(name) {
						return ui.UsageError(
							fmt.Errorf("--markdown names the directories and is the form of the output: --%s says nothing there", name),
						)
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
	fl.StringVar(&f.cfg.BinDir, "bin-dir", "", "the plugins (often /opt/cni/bin or /usr/lib/cni)")
	fl.StringVar(&f.list, "conflist", "",
		"`FILE` of a configuration list (- is standard input) whose plugins are judged as it configures them")
	fl.StringVar(&f.junit, "junit", "", "also write the report to `FILE`, as CI systems read it")
	fl.StringSliceVar(&f.cfg.Only, "only", nil, "only these plugins, separated by commas")
	fl.IntSliceVar(&f.cfg.Items, "item", nil, "only these items of the checklist, by number")
	fl.DurationVar(&f.cfg.Timeout, "timeout", 30*time.Second, "how long one call of a plugin may take")
	fl.BoolVar(&f.runtime, "runtime", false, "also judge weft's own caller on the runtime's items")
	fl.BoolVar(&f.quiet, "quiet", false, "say nothing of the progress")
	fl.StringArrayVar(&f.markdown, "markdown", nil,
		"NAME=DIR, once for each vendor: print one table of all of them, in Markdown")
	fl.StringVarP(&f.output, "output", "o", "text", "text or json")
	return cmd
}

// check refuses a command line that cannot be meant.
func (f *flags) check() error {
	if f.cfg.BinDir == "" {
		return errors.New("--bin-dir is missing: name the directory of the plugins, often /opt/cni/bin")
	}
	if f.output != "text" && f.output != "json" {
		return fmt.Errorf("output %q is neither text nor json", f.output)
	}
	if f.cfg.Timeout < time.Second || f.cfg.Timeout > 10*time.Minute {
		return fmt.Errorf("--timeout %v: from 1s to 10m", f.cfg.Timeout)
	}
	for _, n := range f.cfg.Items {
		if n < 1 || n > len(conformance.Items()) {
			return fmt.Errorf("--item %d: the checklist has the items 1 to %d", n, len(conformance.Items()))
		}
	}
	present, err := conformance.Present(f.cfg.BinDir)
	if err != nil {
		return err
	}
	known := conformance.Types()
	if f.cfg.List != nil {
		known, present = f.cfg.List.Types(), nil
		for _, typ := range known {
			if _, err := os.Stat(filepath.Join(f.cfg.BinDir, typ)); err != nil {
				return fmt.Errorf("--conflist %s: plugin %q: %s has no such program", f.list, typ, f.cfg.BinDir)
			}
			present = append(present, typ)
		}
	}
	for _, typ := range f.cfg.Only {
		if !slices.Contains(known, typ) {
			return fmt.Errorf("--only %q: the plugins that can be judged are %s", typ, strings.Join(known, ", "))
		}
		if !slices.Contains(present, typ) {
			return fmt.Errorf("--only %q: %s has no such program", typ, f.cfg.BinDir)
		}
	}
	if len(present) == 0 {
		return fmt.Errorf("--bin-dir %s has none of the plugins that can be judged without --conflist: %s", f.cfg.BinDir,
			strings.Join(known, ", "))
	}
	return nil
}

// args are the flags for the program inside the namespaces.
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
		args = append(args, "--conflist", "-") // the file may be where nothing is to be seen inside
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

// report judges, and writes what was found.
func (f *flags) report(ctx context.Context, env ui.Env) error {
	f.quiet = f.quiet || f.output == "json"
	report, err := f.judge(ctx, env)
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
	if _, required := report.Broken(); err == nil && required > 0 {
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
		return model.Faultf(model.CodeIO, "name a file that can be written", "--junit: %w", err)
	}
	return nil
}

// judge starts this program again, in namespaces of its own, and reads its report.
func (f *flags) judge(ctx context.Context, env ui.Env) (*conformance.Report, error) {
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
		return nil, ui.Exit(exit.ExitCode()) // it has said why
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

// inside judges, and prints the report for the program outside.
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
		f.cfg.Progress = func(judged string) { fmt.Fprintf(env.Stderr, "weft: judging %s\n", judged) }
	}
	report, err := conformance.Run(ctx, f.cfg)
	if err != nil {
		return err
	}
	return ui.PrintJSON(env.Stdout, report)
}

// table judges each vendor and prints one table.
func (f *flags) table(ctx context.Context, env ui.Env) error {
	var columns []conformance.Column
	for i, m := range f.markdown {
		name, dir, ok := strings.Cut(m, "=")
		if !ok || name == "" || dir == "" {
			return ui.UsageError(fmt.Errorf("--markdown %q is no NAME=DIR", m))
		}
		one := *f
		one.cfg.BinDir, one.quiet = dir, true
		one.runtime = f.runtime && i == 0 // it is weft's caller each time
		if err := one.check(); err != nil {
			return ui.UsageError(err)
		}
		fmt.Fprintf(env.Stderr, "weft: judging %s\n", dir)
		report, err := one.judge(ctx, env)
		if err != nil {
			return err
		}
		columns = append(columns, conformance.Column{Name: name, Report: report})
	}
	return conformance.Markdown(env.Stdout, columns)
}
