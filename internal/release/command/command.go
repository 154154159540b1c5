// SPDX-License-Identifier: Apache-2.0

// Package command is the command line of weft-cluster: install, upgrade, status and uninstall in a Kubernetes cluster.
package command

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"helm.sh/helm/v4/pkg/strvals"
	"sigs.k8s.io/yaml"

	"github.com/weft-net/weft/deploy/chart"
	"github.com/weft-net/weft/internal/cli/printer"
	"github.com/weft-net/weft/internal/cli/progress"
	"github.com/weft-net/weft/internal/cli/ui"
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/release"
)

// Run runs the command line and returns the exit code. name is the name for the usage text: the program's, or a command
// of a program that executes this one.
func Run(ctx context.Context, name string, env ui.Env) int { return ui.Run(ctx, New(name, env), env) }

// New returns the command line.
func New(name string, env ui.Env) *cobra.Command {
	f := &flags{env: env}
	cmd := &cobra.Command{
		Use: "weft-cluster", Annotations: map[string]string{cobra.CommandDisplayNameAnnotation: name},
		Short: "Install weft in a Kubernetes cluster, upgrade and remove it",
		Long: `Installs weft in a Kubernetes cluster, upgrades it and removes it. It makes a release of Helm, from the chart that is part
of this program: helm is not needed, and shows the same release. Values are the chart's (deploy/chart/values.yaml).`,
		Example: "  weft cluster install --set image.repository=registry.example/weft --set image.tag=v1\n" +
			"  weft cluster status",
	}
	p := cmd.PersistentFlags()
	p.StringVar(&f.target.Kubeconfig, "kubeconfig", "", "kubeconfig `FILE` (default: $KUBECONFIG, or ~/.kube/config)")
	p.StringVar(&f.target.Context, "context", "", "`CONTEXT` of the kubeconfig (default: its current one)")
	p.StringVarP(&f.target.Namespace, "namespace", "n", chart.Namespace, "`NAMESPACE` of weft")
	cmd.AddCommand(f.install(), f.upgrade(), f.status(), newUninstall(f))
	return cmd
}

type flags struct {
	env          ui.Env
	target       release.Target
	files, sets  []string
	dryRun, wait bool
	timeout      time.Duration
	output       *printer.Format
	watch        *printer.Watch
}

// open connects to the cluster.
func (f *flags) open() (*release.Cluster, error) {
	t := f.target
	t.Version = f.env.Version
	t.Log = slog.New(slog.NewTextHandler(f.env.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))
	return release.Open(t)
}

// change adds the flags of a command that applies the chart.
func (f *flags) change(cmd *cobra.Command) {
	fs := cmd.Flags()
	fs.StringSliceVarP(&f.files, "values", "f", nil, "`FILE` of values, YAML; later ones win")
	fs.StringArrayVar(&f.sets, "set", nil, "value `KEY=VALUE`, such as mode=multus; may be repeated")
	fs.BoolVar(&f.dryRun, "dry-run", false, "change nothing, print the manifests that the API server would get")
	fs.BoolVar(&f.wait, "wait", true, "wait until all agents and the controller are ready")
	fs.DurationVar(&f.timeout, "timeout", 5*time.Minute, "`DURATION` to wait")
}

func (f *flags) install() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "install",
		Short: "Install weft",
		Long: `Creates weft's kinds, rights, agents and controller, and waits until they are ready. Objects of kubectl apply -f
deploy/weft.yaml become the release's. An installation that was interrupted is resumed. While it waits it prints which
pods are not ready, and why.`,
		Example: "  weft cluster install\n  weft cluster install --set mode=multus --dry-run",
		Args:    ui.NoArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return f.apply(cmd, release.Options{Install: true}) },
	}
	f.change(cmd)
	return cmd
}

func (f *flags) upgrade() *cobra.Command {
	var install bool
	cmd := &cobra.Command{
		Use:   "upgrade",
		Short: "Upgrade weft to the version of this program, or change values",
		Long: `Applies the chart of this program with the values of the last revision and those of the flags, and waits until all agents
are replaced. Running pods keep their network.`,
		Example: "  weft cluster upgrade\n  weft cluster upgrade --set config.network.encapsulation=vxlan",
		Args:    ui.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return f.apply(cmd, release.Options{Install: install, Upgrade: true})
		},
	}
	f.change(cmd)
	cmd.Flags().BoolVar(&install, "install", false, "install weft if it is not")
	return cmd
}

// values reads --values and --set.
func (f *flags) values() (map[string]any, error) {
	out := map[string]any{}
	for _, file := range f.files {
		b, err := os.ReadFile(file)
		if err != nil {
			return nil, ui.FileError("for example -f values.yaml", "--values", file, err)
		}
		var one map[string]any
		if err := yaml.UnmarshalStrict(b, &one); err != nil {
			return nil, ui.UsageError(model.Errorf(model.CodeDecode, "see deploy/chart/values.yaml", "--values %s: %w", file, err))
		}
		merge(out, one)
	}
	for _, set := range f.sets {
		if err := strvals.ParseInto(set, out); err != nil {
			return nil, ui.UsageError(model.Errorf(model.CodeDecode, "for example --set mode=multus", "--set %q: %w", set, err))
		}
	}
	return out, nil
}

// merge merges maps, and replaces other values.
func merge(into, from map[string]any) {
	for key, value := range from {
		below, is := value.(map[string]any)
		have, was := into[key].(map[string]any)
		if is && was {
			merge(have, below)
			continue
		}
		into[key] = value
	}
}

// apply applies the chart, and waits.
func (f *flags) apply(cmd *cobra.Command, o release.Options) error {
	var err error
	if o.Values, err = f.values(); err != nil {
		return err
	}
	if f.timeout <= 0 {
		return ui.UsageError(model.OutOfRange("--timeout", f.timeout, "more than 0s", "5m"))
	}
	if _, err := chart.Render(o.Values, f.target.Namespace); err != nil { // before the cluster is asked
		return ui.UsageError(model.Errorf(model.CodeInvalidConf, "deploy/chart/values.yaml has all values", "%w", err))
	}
	c, err := f.open()
	if err != nil {
		return err
	}
	o.DryRun = f.dryRun
	ctx := cmd.Context()
	line := progress.Start(f.env.Stderr, "waiting for the API server")
	r, err := c.Apply(ctx, o)
	line.Stop()
	if err != nil {
		return err
	}
	if f.dryRun {
		_, err := fmt.Fprint(f.env.Stdout, r.Manifest)
		return err
	}
	if f.wait {
		if err := f.await(ctx, c); err != nil {
			return err
		}
	}
	_, err = fmt.Fprintf(f.env.Stdout, "weft is installed (revision %d)\n", r.Revision)
	return err
}

// await waits for the pods, and prints what it waits for.
func (f *flags) await(ctx context.Context, c *release.Cluster) error {
	limited, cancel := context.WithTimeout(ctx, f.timeout)
	defer cancel()
	line := progress.Start(f.env.Stderr, "waiting for the agents")
	defer line.Stop()
	err := c.Wait(limited, func(r release.Rollout) { line.Logf("waiting for %s", r) })
	if err != nil && errors.Is(limited.Err(), context.DeadlineExceeded) {
		return model.Errorf(model.CodeTryAgain, "weft cluster status; kubectl -n "+f.target.Namespace+" logs daemonset/weft",
			"weft is applied, but after %v %w", f.timeout, err)
	}
	return err
}

func (f *flags) status() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Report what is installed, and which of its pods are not ready and why",
		Long: `Prints the revision, its values, and the pods that are not ready with the reason. The exit code is 0 if all are ready, and
1 otherwise. weft status reports on the network itself.

Keys of -o json: installed, revision, state, description, version, since, values, rollout {workloads [{name, wanted,
updated, ready, pending}], problems [{pod, node, reason}]}; during a removal leaving, nodes [{node, state}].`,
		Example: "  weft cluster status\n  weft cluster status --watch",
		Args:    ui.NoArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return f.printStatus(cmd.Context()) },
	}
	f.output = printer.Flag(cmd.Flags(), printer.Text, printer.JSON)
	f.watch = f.output.Watch(cmd.Flags())
	return cmd
}

func (f *flags) printStatus(ctx context.Context) error {
	c, err := f.open()
	if err != nil {
		return err
	}
	var s release.Status
	err = f.watch.Show(ctx, f.env.Stdout, f.env.Stderr, func(ctx context.Context) (r printer.Result, err error) {
		if s, err = c.Status(ctx); err == nil {
			r, err = f.statusResult(s)
		}
		return r, err
	})
	if err == nil && !f.watch.On() && (!s.Installed || s.Leaving || !s.Rollout.Complete() || s.State != "deployed") {
		return ui.Exit(ui.Bad)
	}
	return err
}

// statusResult is the status as text: a line for each fact, which -w prints again when it changes.
func (f *flags) statusResult(s release.Status) (printer.Result, error) {
	r := printer.Result{Document: s}
	line := func(key, format string, args ...any) {
		text := fmt.Sprintf(format, args...)
		r.Lines = append(r.Lines, printer.Line{Key: cmp.Or(key, text), Text: text})
	}
	if s.Leaving {
		line("release", "weft is being removed since %s", s.Since.Format(time.DateTime))
		for _, n := range s.Nodes {
			line("node "+n.Node, "  %s", n)
		}
		return r, nil
	}
	if s.Installed {
		line("release", "weft %s, revision %d, %s since %s", s.Version, s.Revision, s.State, s.Since.Format(time.DateTime))
		if s.State != "deployed" && s.Description != "" {
			line("", "  %s", s.Description)
		}
		if len(s.Values) > 0 {
			text, err := yaml.Marshal(s.Values)
			if err != nil {
				return r, fmt.Errorf("values: %w", err)
			}
			line("values", "values:\n  %s", strings.ReplaceAll(strings.TrimSpace(string(text)), "\n", "\n  "))
		}
	} else {
		line("release", "no release in namespace %s", f.target.Namespace)
	}
	for _, w := range s.Rollout.Workloads {
		if w.Pending != "" {
			line("workload "+w.Name, "%-16s %s", w.Name, w.Pending)
			continue
		}
		line("workload "+w.Name, "%-16s %d of %d pods are ready, %d of this revision", w.Name, w.Ready, w.Wanted, w.Updated)
	}
	for _, p := range s.Rollout.Problems {
		line("", "  %s", p)
		r.Lines[len(r.Lines)-1].Gone = fmt.Sprintf("  no longer reported: %s", p)
	}
	return r, nil
}
