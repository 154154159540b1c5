// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/weft-net/weft/internal/cli/agents"
	"github.com/weft-net/weft/internal/cli/printer"
	"github.com/weft-net/weft/internal/cli/progress"
	"github.com/weft-net/weft/internal/cli/ui"
	"github.com/weft-net/weft/internal/cluster/store"
	"github.com/weft-net/weft/internal/connectivitytest"
	"github.com/weft-net/weft/internal/connectivitytest/probe"
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/node/nodestatus"
)

// diagnoseTimeout is the time for explain and trace about one failed check. It is long, because a busy node answers late,
// and a failure without its reason is of little use.
const diagnoseTimeout = 30 * time.Second

// maxRandomPolicies are the sets of random policies of one test at most.
const maxRandomPolicies = 1000

func newConnectivityTestCmd(env Env) *cobra.Command {
	f := &connectivityFlags{env: env, source: agents.Source{Env: env}}
	cmd := &cobra.Command{
		Use:   "connectivity-test",
		Short: "Test a cluster's network with pods of its own",
		Long: `Creates pods with weft's image in two namespaces of its own, on two nodes, and tests with real packets: pods, nodes,
the MTU, source addresses, host ports, Services, DNS, a further network and network policies, in all families that pods
have. No host outside is asked, unless --external names one. What should pass is tried again for some seconds; what
should not pass must not pass. weft explain and weft trace then say about each failed check (the first three of a test)
where its packets are lost. The namespaces are deleted at the end, also if the command is killed. The exit code is 0 if
all checks of the tests that ran are as expected, and 1 otherwise.

Keys of -o json: namespace, nodes, millis, tests [{name, skipped, error, millis, rows [{name, ok, error, attempts,
result, diagnosis}]}].`,
		Example: "  weft connectivity-test\n" +
			"  weft connectivity-test --dir /run/weft/lab --only pods,mtu --junit result.xml",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return f.run(cmd) },
	}
	f.source.ClusterFlags(cmd)
	fs := cmd.Flags()
	fs.StringSliceVar(&f.options.Only, "only", nil, "`TESTS` to run, separated by commas (see --list)")
	fs.BoolVar(&f.list, "list", false, "print the tests and run none")
	fs.BoolVar(&f.clean, "clean", false, "delete what earlier tests have left behind, also those that still run")
	fs.StringVar(&f.options.External, "external", "", "`HOST:PORT` outside of the cluster that pods should reach by TCP")
	fs.BoolVar(&f.options.Disruptive, "disruptive", false, "also replace the agent of a node, and migrate VMs")
	fs.BoolVar(&f.options.VMs, "vms", false, "also ping the cluster's VMs")
	fs.BoolVar(&f.options.BootVMs, "boot-vms", false, "also boot a VM with each binding, and ping them")
	fs.StringVar(&f.options.VMImage, "vm-image", "",
		"`IMAGE` of the guest that KubeVirt boots with --boot-vms: that of weft vm image --archive")
	fs.IntVar(&f.options.Rounds, "random-policies", 4, "`COUNT` of sets of random network policies that are tested")
	fs.Uint64Var(&f.options.Seed, "seed", 0, "`NUMBER` of the first set of random policies, to test it again (default: random)")
	fs.DurationVar(&f.options.Wait, "wait", 10*time.Second, "`DURATION` for which what should pass is tried again")
	fs.StringVar(&f.junit, "junit", "", "`FILE` for the results as JUnit XML")
	fs.BoolVarP(&f.verbose, "verbose", "v", false, "print all checks")
	f.output = printer.Flag(cmd.Flags(), printer.Text, printer.JSON)
	cmd.MarkFlagsMutuallyExclusive("list", "clean", "only")
	cmd.AddCommand(newServeProbesCmd(), newProbeCmd(env), f.reapCmd())
	return cmd
}

type connectivityFlags struct {
	env                  Env
	source               agents.Source
	options              connectivitytest.Options
	list, clean, verbose bool
	junit                string
	output               *printer.Format
}

func (f *connectivityFlags) run(cmd *cobra.Command) error {
	if f.list {
		return f.printList()
	}
	if f.options.Wait < 0 {
		return ui.UsageError(model.OutOfRange("--wait", f.options.Wait, "0s or more", "10s"))
	}
	host, port, err := net.SplitHostPort(f.options.External)
	if f.options.External != "" && (err != nil || host == "" || port == "") {
		return ui.Misusef("for example --external 192.0.2.1:443", "--external %q is not HOST:PORT", f.options.External)
	}
	if f.options.Rounds < 0 || f.options.Rounds > maxRandomPolicies {
		return ui.UsageError(
			model.OutOfRange("--random-policies", f.options.Rounds, fmt.Sprintf("0 to %d", maxRandomPolicies), 4))
	}
	if f.options.VMImage != "" && !f.options.BootVMs {
		return ui.Misusef("add --boot-vms", "--vm-image is for the VMs of --boot-vms")
	}
	ctx := cmd.Context()
	c, err := f.source.Open(ctx)
	if err != nil {
		return err
	}
	if c.Dir != "" && f.options.VMImage != "" {
		return ui.Misusef("leave it out", "--vm-image is for KubeVirt: a lab boots weft's own guest")
	}
	if c.Objects == nil {
		return ui.UsageError(model.Errorf(model.CodeInvalidConf, "name a lab with --dir or a cluster with --kubeconfig",
			"--state-dir: one agent is not a cluster"))
	}
	if f.clean {
		return f.cleanUp(ctx, c)
	}
	junit, err := f.createJUnit() // before the test, which takes a while
	if err != nil {
		return err
	}
	report, err := f.test(ctx, c)
	if err != nil {
		return errors.Join(err, junit.Close())
	}
	if f.output.Document() {
		err = f.output.Print(f.env.Stdout, report)
	} else {
		report.Text(f.output.Verdicts(f.env.Stdout, f.env.Getenv), f.verbose)
	}
	err = errors.Join(err, report.JUnit(junit), junit.Close())
	if err == nil && !report.OK() {
		return ui.Exit(ui.Bad)
	}
	return err
}

// test runs the tests in a new namespace, which is deleted afterwards: by this process, or if it is killed by another.
func (f *connectivityFlags) test(ctx context.Context, c agents.Cluster) (report connectivitytest.Report, err error) {
	image, err := c.Image(ctx)
	if err != nil {
		return report, err
	}
	namespace := connectivitytest.NewName()
	line := progress.Start(f.env.Stderr, "waiting for the cluster")
	defer line.Stop()
	f.options.Logf = func(format string, args ...any) { line.Logf("connectivity test: "+format, args...) }
	suite, err := connectivitytest.New(testedCluster{c, image, f}, namespace, f.options)
	if err != nil {
		return report, ui.UsageError(err)
	}
	left, err := connectivitytest.Leftovers(ctx, c.Objects)
	if err != nil {
		return report, err
	}
	if len(left) > 0 {
		ui.Warn(
			line,
			model.Errorf(model.CodeTryAgain, "unless it still runs, weft connectivity-test --clean deletes it",
				"namespace %s is of another connectivity test", strings.Join(left, ", ")),
		)
	}
	done, err := f.startReaper(namespace)
	if err != nil {
		return report, err
	}
	defer func() {
		line.Set("waiting for the end of namespace " + namespace)
		cleaned := connectivitytest.Clean(context.WithoutCancel(ctx), c.Objects, namespace, c.Dir != "")
		if cleaned == nil {
			done()
		}
		err = errors.Join(err, cleaned)
	}()
	return suite.Run(ctx)
}

// startReaper starts a process that deletes the namespace when this process ends without calling done.
func (f *connectivityFlags) startReaper(namespace string) (done func(), err error) {
	argv := append([]string{"connectivity-test", "reap"}, f.source.Args()...)
	cmd := exec.Command(f.env.Self, append(argv, namespace)...)
	cmd.Stderr = os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // not interrupted with this one
	pipe, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("process that cleans up: %w", err)
	}
	return func() {
		_, _ = io.WriteString(pipe, "done\n")
		_ = pipe.Close()
		_ = cmd.Wait()
	}, nil
}

// reapCmd waits for the end of its input, and deletes the namespace unless it was "done".
func (f *connectivityFlags) reapCmd() *cobra.Command {
	source := agents.Source{Env: f.env}
	cmd := &cobra.Command{
		Use: "reap NAMESPACE", Short: "Delete a namespace when the input ends", Hidden: true, Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			said, err := io.ReadAll(f.env.Stdin)
			if err != nil || string(said) == "done\n" {
				return err
			}
			c, err := source.Open(cmd.Context())
			if err != nil {
				return err
			}
			return connectivitytest.Clean(cmd.Context(), c.Objects, args[0], c.Dir != "")
		},
	}
	source.ClusterFlags(cmd)
	return cmd
}

// cleanUp deletes what earlier tests have left.
func (f *connectivityFlags) cleanUp(ctx context.Context, c agents.Cluster) error {
	left, err := connectivitytest.Leftovers(ctx, c.Objects)
	if err != nil {
		return err
	}
	var errs []error
	for _, namespace := range left {
		err := connectivitytest.Clean(ctx, c.Objects, namespace, c.Dir != "")
		errs = append(errs, err)
		if err == nil {
			fmt.Fprintf(f.env.Stdout, "deleted %s\n", namespace)
		}
	}
	return errors.Join(errs...)
}

func (f *connectivityFlags) printList() error {
	list := connectivitytest.List()
	if f.output.Document() {
		return f.output.Print(f.env.Stdout, list)
	}
	for _, t := range list {
		fmt.Fprintf(f.env.Stdout, "%-13s %s\n", t.Name, t.About)
	}
	return nil
}

// createJUnit creates the file for the results; without one they go nowhere.
func (f *connectivityFlags) createJUnit() (*os.File, error) {
	path := f.junit
	if path == "" {
		path = os.DevNull
	}
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o644)
	if err != nil {
		return nil, ui.FileError("for example --junit result.xml", "--junit", f.junit, err)
	}
	return file, nil
}

// newServeProbesCmd is what the test's pods run.
func newServeProbesCmd() *cobra.Command {
	var name string
	var ports []int
	cmd := &cobra.Command{
		Use: "serve", Short: "Answer the probes of a connectivity test", Hidden: true, Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return (&probe.Server{Name: name}).Serve(cmd.Context(), ports)
		},
	}
	cmd.Flags().StringVar(&name, "name", "server", "`NAME` in answers")
	cmd.Flags().IntSliceVar(&ports, "port", nil, "`PORT` to answer on")
	return cmd
}

// newProbeCmd is what is executed in the test's pods.
func newProbeCmd(env Env) *cobra.Command {
	return &cobra.Command{
		Use: "probe PROBES", Short: "Send the probes of a connectivity test", Hidden: true, Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			probes, err := probe.Parse(args[0])
			if err != nil {
				return ui.UsageError(fmt.Errorf("probes: %w", err))
			}
			return ui.PrintJSON(env.Stdout, probe.Run(cmd.Context(), probes))
		},
	}
}

// testedCluster is a cluster for the test.
type testedCluster struct {
	agents.Cluster
	image string
	flags *connectivityFlags
}

func (c testedCluster) Objects() store.Objects { return c.Cluster.Objects }
func (c testedCluster) Image() string          { return c.image }
func (c testedCluster) Lab() bool              { return c.Dir != "" }

// Nodes returns the nodes whose agents answer.
func (c testedCluster) Nodes(ctx context.Context) ([]string, error) {
	x := newExplanation(c.Cluster)
	if err := x.facts(ctx); err != nil {
		return nil, err
	}
	return slices.Sorted(maps.Keys(x.nodes)), nil
}

func (c testedCluster) Exec(ctx context.Context, namespace, pod string, args ...string) ([]byte, error) {
	return c.Cluster.Exec(ctx, namespace, pod, connectivitytest.Container, args...)
}

// RunsVMs makes sure that there is an image for the guests of a lab.
func (c testedCluster) RunsVMs(ctx context.Context) error {
	out, err := exec.CommandContext(ctx, c.flags.env.Self, "vm", "image").CombinedOutput()
	if err != nil {
		return errors.New(strings.TrimSpace(string(out)))
	}
	return nil
}

// migrationEnd is the time in which an interrupted migration removes what it started.
const migrationEnd = time.Minute

// Migrate executes weft lab migrate. When ctx ends, the migration is interrupted, not killed: the pod that it started
// on the target node would stay.
func (c testedCluster) Migrate(ctx context.Context, vm, node string) (connectivitytest.Migration, error) {
	cmd := exec.CommandContext(ctx, c.flags.env.Self, "lab", "migrate", "--dir", c.Dir, "-o", "json", vm, node)
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = migrationEnd
	var errs strings.Builder
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil {
		return connectivitytest.Migration{}, fmt.Errorf("%w: %s", err, strings.TrimSpace(errs.String()))
	}
	var m struct {
		Resets  int
		PauseMs float64
	}
	if err := json.Unmarshal(out, &m); err != nil {
		return connectivitytest.Migration{}, fmt.Errorf("weft lab migrate: %w", err)
	}
	pause := time.Duration(m.PauseMs * float64(time.Millisecond))
	return connectivitytest.Migration{Resets: m.Resets, Pause: pause}, nil
}

// Findings returns what the agents find bad.
func (c testedCluster) Findings(ctx context.Context) ([]string, error) {
	fresh, err := c.flags.source.Open(ctx) // an agent may have been replaced
	if err != nil {
		return nil, err
	}
	status, err := askStatus(ctx, fresh)
	if err != nil {
		return nil, err
	}
	var out []string
	for _, f := range status.Findings {
		if f.Level == nodestatus.Bad {
			out = append(out, strings.TrimSpace(f.Node+": "+f.Message))
		}
	}
	return out, nil
}

// Diagnose returns the faults that explain finds, and where a traced packet is lost.
func (c testedCluster) Diagnose(ctx context.Context, question connectivitytest.Question) []string {
	ctx, cancel := context.WithTimeout(ctx, diagnoseTimeout)
	defer cancel()
	q := query{from: question.From, to: question.To, protocol: question.Protocol, port: question.Port}
	var out []string
	x := newExplanation(c.Cluster)
	reports, err := x.explain(ctx, q)
	if err != nil {
		out = append(out, "explain: "+err.Error())
	}
	for _, r := range reports {
		if r.From.Addr.Is6() != question.IPv6 {
			continue
		}
		var text strings.Builder
		r.Text(&text, false)
		out = append(out, lines("explain: ", text.String())...)
	}
	f := traceFlags{six: question.IPv6, size: question.Size}
	x = newExplanation(c.Cluster)
	report, err := f.trace(ctx, x, q)
	// A node may have another trace.
	for busy := (*model.Error)(nil); errors.As(err, &busy) && busy.Code == model.CodeTryAgain && ctx.Err() == nil; {
		select {
		case <-ctx.Done():
		case <-time.After(time.Second):
			report, err = f.trace(ctx, x, q)
		}
	}
	if err != nil {
		return append(out, "trace: "+err.Error())
	}
	var text strings.Builder
	report.Text(&text, false)
	return append(out, lines("trace: ", text.String())...)
}

// lines puts a word before the lines of an explanation or a trace, and leaves out single hops and steps.
func lines(before, text string) (out []string) {
	for _, line := range strings.Split(strings.TrimSpace(text), "\n") {
		detail := strings.TrimLeft(line, " ")
		if detail == line || strings.HasPrefix(detail, "object: ") || strings.HasPrefix(detail, "hint: ") {
			out = append(out, before+detail)
		}
	}
	return out
}
