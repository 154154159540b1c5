// SPDX-License-Identifier: Apache-2.0

package command

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/weft-net/weft/internal/cli/printer"
	"github.com/weft-net/weft/internal/cli/progress"
	"github.com/weft-net/weft/internal/cli/ui"
	"github.com/weft-net/weft/internal/lab"
	"github.com/weft-net/weft/internal/lab/connectivity"
	"github.com/weft-net/weft/internal/lab/cut"
	"github.com/weft-net/weft/internal/lab/replicas"
)

// defaultLabDir is the default of --dir.
const defaultLabDir = "/run/weft/lab"

// labFlags are the flags of all weft lab commands.
type labFlags struct {
	dir string
}

func newLabCmd(env ui.Env) *cobra.Command {
	f := &labFlags{}
	cmd := &cobra.Command{
		Use:   "lab",
		Short: "Run a whole cluster on this host, in network namespaces",
		Long: "A lab is a cluster on one host: each node is a network namespace with its own agent and sandbox runtime, and pods\n" +
			"run in sandboxes on the nodes. All files of a lab are in its state directory (--dir), so that several labs can run\n" +
			"in parallel. It needs root, or a shell opened with `unshare -Urnm` and a --dir of your own.",
		Example: "  weft lab up --nodes 3 --from examples\n  weft lab reach\n  weft lab exec node1 -- ip route\n  weft lab down",
	}
	cmd.PersistentFlags().StringVar(&f.dir, "dir", env.Variable(ui.LabVariable, defaultLabDir), "state `DIR` of the lab, or $WEFT_LAB")
	cmd.AddCommand(newLabUpCmd(env, f), newLabDownCmd(env, f), newLabStatusCmd(env, f), newLabReachCmd(env, f),
		newLabExecCmd(env, f), newLabGraphCmd(env, f), newLabMigrateCmd(env, f),
		newLabCutCmd(env, f), newLabUncutCmd(env, f), newLabListCmd(env), newLabApplyCmd(env, f), newLabDeleteCmd(env, f),
		newLabScaleCmd(env, f), newLabRestartCmd(env, f), newLabAddNodeCmd(env, f), newLabRemoveNodeCmd(env, f),
		newLabDrainCmd(env, f), newLabUncordonCmd(env, f), newLabUICmd(env, f))
	return cmd
}

// logf prints progress to stderr.
func logf(env ui.Env) lab.Progress {
	return func(format string, args ...any) { fmt.Fprintf(env.Stderr, "weft: "+format+"\n", args...) }
}

// childEnv returns the environment of a lab's processes.
func childEnv(env ui.Env) []string {
	var out []string
	for _, name := range []string{"PATH", "HOME", "TMPDIR", "LANG", "GOCOVERDIR"} {
		if v := env.Getenv(name); v != "" {
			out = append(out, name+"="+v)
		}
	}
	return out
}

func newLabUpCmd(env ui.Env, f *labFlags) *cobra.Command {
	var cidrs, bins []string
	u := lab.Up{Self: env.Self, Env: childEnv(env)}
	vms := true
	cmd := &cobra.Command{
		Use:   "up",
		Short: "Bring a lab up",
		Long: "Creates the nodes and wires, starts the processes and runs the pods of the manifests. It first removes a killed lab\n" +
			"from the state directory. If up fails or is stopped, it leaves nothing behind. If pods fail or connectivity is\n" +
			"incomplete, it keeps the lab, so that the cause can be inspected, and exits with 1; with --keep-going also if nodes or\n" +
			"VMs fail. The last error says what has failed, and why.",
		Example: "  weft lab up --nodes 3 --from examples\n" +
			"  weft lab up --from examples,examples/machines --addresses pools --encapsulation vxlan", // glossary: a directory
		Args: ui.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			if u.Dir, err = lab.At(f.dir); err != nil {
				return err
			}
			for _, c := range cidrs {
				p, err := netip.ParsePrefix(strings.TrimSpace(c))
				if err != nil {
					return ui.Misusef("for example --cluster-cidr 10.42.0.0/16", "--cluster-cidr %q is not a prefix", c)
				}
				u.Spec.ClusterCIDRs = append(u.Spec.ClusterCIDRs, p)
			}
			if _, err := u.Spec.Layout(); err != nil {
				return ui.UsageError(err)
			}
			if u.ConnectivityTimeout < 0 {
				return ui.Misusef("for example --wait 1m", "--wait %s is not a positive duration", u.ConnectivityTimeout)
			}
			for _, e := range u.AgentEnv {
				if name, _, ok := strings.Cut(e, "="); !ok || name == "" {
					return ui.Misusef("for example --agent-env LANG=C", "--agent-env %q is not NAME=VALUE", e)
				}
			}
			u.NoVMs = !vms
			if u.Agent, err = filepath.Abs(cmp.Or(u.Agent, filepath.Join(filepath.Dir(env.Self), "weft-agent"))); err != nil {
				return err
			}
			if _, err := os.Stat(u.Agent); err != nil {
				return ui.FileError("for example --agent /usr/local/bin/weft-agent", "--agent", u.Agent, err)
			}
			if u.Spec.Fabric != "" {
				u.Speaker = filepath.Join(filepath.Dir(env.Self), "weft-bgp")
				if _, err := os.Stat(u.Speaker); err != nil {
					return ui.FileError("run `make build`", "--fabric "+u.Spec.Fabric+": weft-bgp", u.Speaker, err)
				}
			}
			u.BinDirs = append([]string{filepath.Join(filepath.Dir(env.Self), "cni")}, bins...)
			line := progress.Start(env.Stderr, "creating the lab")
			defer line.Stop()
			u.Logf = line.Logf
			return u.Run(cmd.Context())
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&u.Spec.Name, "name", "lab", "`NAME` of the lab")
	flags.IntVar(&u.Spec.Nodes, "nodes", 3, "`COUNT` of nodes, 1 to 200")
	flags.IntVar(&u.Spec.Wires, "wires", 2, "`COUNT` of wires; every node is connected to each, as eth0, eth1 …")
	flags.StringSliceVar(&u.From, "from", nil,
		"`DIR` with the cluster's *.yaml manifests, without subdirectories; several, separated by commas")
	flags.StringSliceVar(&cidrs, "cluster-cidr", []string{"10.42.0.0/16", "fd42::/48"},
		"`PREFIX` of the pods' addresses; one for each address family, separated by commas")
	flags.StringVar(&u.Spec.Encapsulation, "encapsulation", "host-gw",
		"`BACKEND` between nodes: host-gw, vxlan, udp, ipip, wireguard, or a custom backend of --agent")
	flags.StringVar(&u.Spec.Fabric, "fabric", "",
		"`NAME` of a fabric of routers: leaf-spine, two racks and two spines, in which nodes speak BGP (default: none)")
	flags.StringVar(
		&u.Agent, "agent", "",
		"`PROGRAM` that the nodes run as their agent: a weft-agent with custom backends (default: weft-agent in this program's directory)",
	)
	flags.StringArrayVar(&u.AgentEnv, "agent-env", nil,
		"`NAME=VALUE` in the agents' environment; repeatable")
	flags.StringVar(&u.Spec.Design, "design", "routed", "`DESIGN` of the pods' attachment to their node: routed or bridge")
	flags.StringVar(&u.Spec.Addresses, "addresses", "podCIDRs",
		"`MODE` of allocating pod addresses: podCIDRs, one prefix per node, or pools, blocks of the cluster's prefixes")
	flags.StringVar(&u.Spec.Observe, "observe", "",
		"`LEVEL` of what the agents observe while weft observe does not ask: off, denied or flows (default off)")
	flags.DurationVar(&u.ConnectivityTimeout, "wait", time.Minute, "`DURATION` to wait for connectivity between nodes and pods")
	flags.BoolVar(&u.KeepGoing, "keep-going", false, "keep the lab if some nodes or VMs fail, and start the others")
	flags.BoolVar(&vms, "machines", true, "run the manifests' VMs") // glossary: the flag's name stays
	flags.StringSliceVar(&bins, "cni-bin-dir", nil, "additional `DIR` of CNI plugins; several, separated by commas")
	return cmd
}

func newLabDownCmd(env ui.Env, f *labFlags) *cobra.Command {
	return &cobra.Command{
		Use:   "down",
		Short: "Remove a lab: processes, namespaces, mounts and files",
		Long: "Stops the lab's pods and VMs, ends its processes and removes its namespaces, mounts and files, also after `weft lab up`\n" +
			"or a node was killed. Without a lab it does nothing and exits with 0.",
		Example: "  weft lab down\n" +
			"  weft lab down --dir /run/weft/pooled",
		Args: ui.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			d, err := lab.At(f.dir)
			if err != nil {
				return err
			}
			line := progress.Start(env.Stderr, "waiting for the end of pods and processes")
			defer line.Stop()
			return d.Down(cmd.Context(), line.Logf)
		},
	}
}

func newLabStatusCmd(env ui.Env, f *labFlags) *cobra.Command {
	var output *printer.Format
	var watch *printer.Watch
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show nodes, pods and addresses",
		Long:  "Shows nodes, pods and addresses. It exits with 1 if a process of the lab is dead, or a pod has no network.",
		Example: "  weft lab status\n" +
			"  weft lab status -o wide\n" +
			"  weft lab status --watch\n" +
			"  weft lab status --dir /run/weft/pooled -o json",
		Args: ui.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			d, err := lab.At(f.dir)
			if err != nil {
				return err
			}
			var st lab.Status
			reader := lab.NewStatusReader(d)
			err = watch.Show(cmd.Context(), env.Stdout, env.Stderr, func(ctx context.Context) (_ printer.Result, err error) {
				st, err = reader.Status(ctx)
				return statusResult(output, st), err
			})
			if err == nil && len(st.Problems) > 0 && !watch.On() {
				err = ui.Exit(ui.Bad)
			}
			return err
		},
	}
	output = printer.Objects(cmd.Flags(), true)
	watch = output.Watch(cmd.Flags())
	return cmd
}

func statusResult(output *printer.Format, st lab.Status) printer.Result {
	nodes := printer.Table{Header: []string{"NODE", "ADDRESSES", "POD CIDRS", "PODS", "AGENT", "RUNTIME", "SCHEDULING"}}
	for _, n := range st.Nodes {
		nodes.Row(n.Name, n.Name, join(n.IPs), join(n.PodCIDRs), strconv.Itoa(n.Pods), n.Agent, n.Sandbox, scheduling(n))
	}
	pods := printer.Table{Header: []string{"POD", "ADDRESSES", "NODE", "NETWORK", "STATE", "NETNS"}, Wide: 1}
	for _, p := range st.Pods {
		network, state := "pod", p.State
		if p.HostNetwork {
			network = "host"
		}
		if p.State == "Running" && !p.Ready {
			state += ", not ready"
		}
		if p.Reason != "" {
			state += ": " + p.Reason
		}
		name := p.Namespace + "/" + p.Name
		pods.Row(name, name, join(p.IPs), p.Node, network, state, p.Netns)
	}
	routers := routerTable(st.Routers)
	r := printer.Result{Document: st, Tables: []printer.Table{nodes, routers, pods}}
	if output.Is(printer.Name) { // the nodes, routers and pods that weft lab exec accepts
		return r
	}
	r.Tables = []printer.Table{
		nodes, routers, deploymentTable(st.Deployments), pods, networkTable(st.Pods), vmTable(st.VMs), cutTable(st.Cuts),
	}
	head := "\n"
	for _, s := range st.Skipped {
		r.Lines = append(r.Lines, printer.Line{Key: s.Name, Text: head + "skip " + s.Name + ": " + s.Reason})
		head = ""
	}
	if !output.Document() {
		r.Warnings = st.Problems
	}
	return r
}

// scheduling reports whether pods are bound to a node.
func scheduling(n lab.NodeStatus) string {
	if n.Unschedulable {
		return "disabled"
	}
	return "enabled"
}

// routerTable lists the routers of a fabric.
func routerTable(all []lab.RouterStatus) printer.Table {
	t := printer.Table{Header: []string{"ROUTER", "AS", "AGENT", "SPEAKER"}}
	for _, r := range all {
		t.Row(r.Name, r.Name, strconv.FormatUint(uint64(r.ASN), 10), r.Agent, r.Speaker)
	}
	return t
}

// deploymentTable lists the Deployments and ReplicaSets.
func deploymentTable(all []replicas.Status) printer.Table {
	t := printer.Table{Header: []string{"OWNER", "READY"}}
	for _, d := range all {
		t.Row("", strings.ToLower(d.Kind)+" "+d.Namespace+"/"+d.Name, fmt.Sprintf("%d/%d", d.Ready, d.Replicas))
	}
	return t
}

// cutTable lists what the wires drop.
func cutTable(all []cut.Cut) printer.Table {
	t := printer.Table{Header: []string{"CUT WIRE", "FROM", "TO"}, Keys: 2}
	for _, c := range all {
		t.Row("", c.Wire, cmp.Or(c.From, "every node"), cmp.Or(c.To, "every node"))
	}
	return t
}

// networkTable lists the additional networks of pods.
func networkTable(pods []lab.PodStatus) printer.Table {
	t := printer.Table{Header: []string{"POD", "ADDITIONAL NETWORK", "INTERFACE", "ADDRESSES"}, Keys: 3}
	for _, p := range pods {
		for _, n := range p.Networks {
			t.Row("", p.Namespace+"/"+p.Name, n.Name, n.Interface, join(n.IPs))
		}
	}
	return t
}

// printSkipped lists what is not tested, after a head.
func printSkipped(w io.Writer, head string, all []connectivity.Skip) {
	for _, s := range all {
		fmt.Fprintf(w, "%sskip %s: %s\n", head, s.Name, s.Reason)
		head = ""
	}
}

func join[T fmt.Stringer](in []T) string {
	var out []string
	for _, v := range in {
		out = append(out, v.String())
	}
	return strings.Join(out, " ")
}

func newLabReachCmd(env ui.Env, f *labFlags) *cobra.Command {
	var timeout, wait time.Duration
	var output *printer.Format
	cmd := &cobra.Command{
		Use:   "reach",
		Short: "Test connectivity between all pods and nodes",
		Long: "Sends ICMP, TCP and UDP over IPv4 and IPv6 from every pod and node to every other, and exits with 1 if a pair is not\n" +
			"reachable that should be, or is reachable although network policies deny it. The nodes' agents evaluate the\n" +
			"policies, as for `weft policy why`. It listens and sends in the pods' namespaces itself, so that the pods need no\n" +
			"program for it. Soon after a change, for example a new pod or policy, not every agent has it yet: --wait repeats\n" +
			"the test until each pair is as expected.",
		Example: "  weft lab reach\n" +
			"  weft lab reach --wait 30s\n" +
			"  weft lab reach --timeout 5s -o json",
		Args: ui.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if timeout <= 0 {
				return ui.Misusef("for example --timeout 2s", "--timeout %s is not a positive duration", timeout)
			}
			if wait < 0 {
				return ui.Misusef("for example --wait 30s", "--wait %s is a negative duration", wait)
			}
			d, err := lab.At(f.dir)
			if err != nil {
				return err
			}
			r, err := testConnectivity(cmd.Context(), d, timeout, wait)
			if err != nil {
				return err
			}
			if output.Document() {
				err = output.Print(env.Stdout, r)
			} else {
				err = printConnectivity(env.Stdout, r)
			}
			if err == nil && !r.OK() {
				err = connectivityError(r)
			}
			return err
		},
	}
	cmd.Flags().DurationVar(&timeout, "timeout", 2*time.Second, "`DURATION` after which a pair is not reachable")
	cmd.Flags().DurationVar(&wait, "wait", 0, "`DURATION` for which the test is repeated until each pair is as expected")
	output = printer.Flag(cmd.Flags(), printer.Text, printer.JSON)
	return cmd
}

// testConnectivity tests connectivity until each pair is as expected, and until wait has passed at most. It returns the
// last report.
func testConnectivity(ctx context.Context, d lab.Dir, timeout, wait time.Duration) (connectivity.Report, error) {
	for end := time.Now().Add(wait); ; {
		r, err := d.TestConnectivity(ctx, timeout)
		if err != nil || r.OK() || !time.Now().Before(end) {
			return r, err
		}
		select {
		case <-ctx.Done():
			return r, ctx.Err()
		case <-time.After(min(time.Second, time.Until(end))):
		}
	}
}
