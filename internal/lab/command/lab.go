// SPDX-License-Identifier: Apache-2.0

package command

import (
	"cmp"
	"fmt"
	"io"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/weft-net/weft/internal/cli/ui"
	"github.com/weft-net/weft/internal/lab"
	"github.com/weft-net/weft/internal/model"
)

// defaultLabDir is where a lab lives unless --dir says otherwise.
const defaultLabDir = "/run/weft/lab"

// labFlags are what the verbs of weft lab share.
type labFlags struct {
	dir string
}

func newLabCmd(env ui.Env) *cobra.Command {
	f := &labFlags{}
	cmd := &cobra.Command{
		Use:   "lab",
		Short: "A whole cluster on this machine, in network namespaces",
		Long: "A lab is a cluster on one machine: each node is a network namespace with an agent and a sandbox runtime of its\n" +
			"own; pods run in sandboxes on them. Everything a lab makes is below its state directory (--dir), so several\n" +
			"labs live beside each other. It needs root, or a shell opened with `unshare -Urnm` and a --dir of your own.",
		Example: "  weft lab up --nodes 3 --from examples\n  weft lab reach\n  weft lab exec node1 -- ip route\n  weft lab down",
	}
	cmd.PersistentFlags().StringVar(&f.dir, "dir", defaultLabDir, "state directory of the lab")
	cmd.AddCommand(newLabUpCmd(env, f), newLabDownCmd(env, f), newLabStatusCmd(env, f), newLabReachCmd(env, f),
		newLabExecCmd(env, f), newLabGraphCmd(env, f), newLabMigrateCmd(env, f))
	return cmd
}

// say prints progress for people.
func say(env ui.Env) lab.Progress {
	return func(format string, args ...any) { fmt.Fprintf(env.Stderr, "weft: "+format+"\n", args...) }
}

// childEnv is what the processes of a lab get of the environment.
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
	u := lab.Up{Self: env.Self, Env: childEnv(env), Say: say(env)}
	machines := true
	cmd := &cobra.Command{
		Use:   "up",
		Short: "Bring a lab up",
		Long: "Makes the nodes and wires, starts the processes and runs the pods of the manifests. What an earlier, killed lab\n" +
			"left in the state directory is taken away first; when up itself fails or is stopped it leaves nothing behind.",
		Args: ui.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			if u.Dir, err = lab.At(f.dir); err != nil {
				return err
			}
			for _, c := range cidrs {
				p, err := netip.ParsePrefix(strings.TrimSpace(c))
				if err != nil {
					return ui.UsageError(fmt.Errorf("--cluster-cidr %q is no prefix like 10.42.0.0/16", c))
				}
				u.Spec.ClusterCIDRs = append(u.Spec.ClusterCIDRs, p)
			}
			if _, err := u.Spec.Lay(); err != nil {
				return ui.UsageError(err)
			}
			for _, e := range u.AgentEnv {
				if name, _, ok := strings.Cut(e, "="); !ok || name == "" {
					return ui.UsageError(fmt.Errorf("--agent-env %q is not NAME=VALUE", e))
				}
			}
			u.NoMachines = !machines
			if u.Agent, err = filepath.Abs(cmp.Or(u.Agent, filepath.Join(filepath.Dir(env.Self), "weft-agent"))); err != nil {
				return err
			}
			if _, err := os.Stat(u.Agent); err != nil {
				return model.Faultf(model.CodeInvalidEnv, "name the program with --agent", "the nodes' agent: %w", err)
			}
			u.BinDirs = append([]string{filepath.Join(filepath.Dir(env.Self), "cni")}, bins...)
			return u.Run(cmd.Context())
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&u.Spec.Name, "name", "lab", "name of the lab")
	flags.IntVar(&u.Spec.Nodes, "nodes", 3, "number of nodes")
	flags.IntVar(&u.Spec.Wires, "wires", 2, "number of wires that every node is on, as eth0, eth1 …")
	flags.StringSliceVar(&u.From, "from", nil,
		"directories whose *.yaml manifests (not those of subfolders) make the cluster")
	flags.StringSliceVar(&cidrs, "cluster-cidr", []string{"10.42.0.0/16", "fd42::/48"},
		"prefixes that the pods are numbered from")
	flags.StringVar(&u.Spec.Encapsulation, "encapsulation", "host-gw",
		"how packets get from node to node: host-gw, vxlan, udp, ipip or wireguard, or a back end that --agent has")
	flags.StringVar(
		&u.Agent, "agent", "",
		"`PROGRAM` that the nodes run as their agent: weft-agent with back ends of your own (default: weft-agent beside this program)",
	)
	flags.StringArrayVar(&u.AgentEnv, "agent-env", nil,
		"`NAME=VALUE` in the agents' environment, as often as there are such")
	flags.StringVar(&u.Spec.Design, "design", "routed", "how pods are joined to their node: routed or bridge")
	flags.StringVar(&u.Spec.Addresses, "addresses", "podCIDRs",
		"what pods are numbered from: podCIDRs, a prefix a node, or pools, blocks of the cluster's prefixes")
	flags.BoolVar(&machines, "machines", true, "run the manifests' virtual machines")
	flags.StringSliceVar(&bins, "cni-bin-dir", nil, "directories of further CNI plugins")
	return cmd
}

func newLabDownCmd(env ui.Env, f *labFlags) *cobra.Command {
	return &cobra.Command{
		Use:   "down",
		Short: "Take a lab down: processes, namespaces, mounts and files",
		Args:  ui.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			d, err := lab.At(f.dir)
			if err != nil {
				return err
			}
			return d.Down(cmd.Context(), say(env))
		},
	}
}

func newLabStatusCmd(env ui.Env, f *labFlags) *cobra.Command {
	var output *string
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show nodes, pods and addresses",
		Long:  "Shows nodes, pods and addresses. It exits with 1 when a process of the lab is dead, or a pod has no network.",
		Args:  ui.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			d, err := lab.At(f.dir)
			if err != nil {
				return err
			}
			st, err := d.Status(cmd.Context())
			if err != nil {
				return err
			}
			if *output == "json" {
				err = ui.PrintJSON(env.Stdout, st)
			} else {
				err = printStatus(env, st)
			}
			if err == nil && len(st.Problems) > 0 {
				err = ui.Exit(ui.Bad)
			}
			return err
		},
	}
	output = ui.OutputFlag(cmd, "text", "json")
	return cmd
}

func printStatus(env ui.Env, st lab.Status) error {
	w := tabwriter.NewWriter(env.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "NODE\tADDRESSES\tPODS FROM\tPODS\tAGENT\tSANDBOXES")
	for _, n := range st.Nodes {
		fmt.Fprintf(w, "%s\t%s\t%s\t%d\t%s\t%s\n", n.Name, join(n.IPs), join(n.PodCIDRs), n.Pods, n.Agent, n.Sandbox)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	if len(st.Pods) > 0 {
		fmt.Fprintln(env.Stdout)
		fmt.Fprintln(w, "POD\tADDRESSES\tNODE\tNETWORK\tSTATE")
	}
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
		fmt.Fprintf(w, "%s/%s\t%s\t%s\t%s\t%s\n", p.Namespace, p.Name, join(p.IPs), p.Node, network, state)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	printNetworks(w, st.Pods)
	if len(st.Machines) > 0 {
		fmt.Fprintln(env.Stdout)
		printMachines(w, st.Machines)
	}
	for _, p := range st.Problems {
		fmt.Fprintf(env.Stderr, "weft: %s\n", p)
	}
	return w.Flush()
}

// printNetworks lists the networks that pods have beside the cluster's.
func printNetworks(w io.Writer, pods []lab.PodStatus) {
	head := "\nPOD\tFURTHER NETWORK\tINTERFACE\tADDRESSES\n"
	for _, p := range pods {
		for _, n := range p.Networks {
			fmt.Fprintf(w, "%s%s/%s\t%s\t%s\t%s\n", head, p.Namespace, p.Name, n.Name, n.Interface, join(n.IPs))
			head = ""
		}
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
	var timeout time.Duration
	var output *string
	cmd := &cobra.Command{
		Use:   "reach",
		Short: "Send packets between all pods and nodes and show who reaches whom",
		Long: "Sends ICMP, TCP and UDP over IPv4 and IPv6 from every pod and node to every other, and exits with 1 when a\n" +
			"pair does not reach that should, or reaches though network policies deny it: what should be is asked of the nodes' agents, as\n" +
			"`weft policy why` does. Nothing has to run in the pods: it listens and sends in their namespaces itself.",
		Args: ui.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			d, err := lab.At(f.dir)
			if err != nil {
				return err
			}
			r, err := d.Reach(cmd.Context(), timeout)
			if err != nil {
				return err
			}
			if *output == "json" {
				err = ui.PrintJSON(env.Stdout, r)
			} else {
				err = printReach(env.Stdout, r)
			}
			if err == nil && !r.OK() {
				err = reachFault(r)
			}
			return err
		},
	}
	cmd.Flags().DurationVar(&timeout, "timeout", 2*time.Second, "how long one pair is tried")
	output = ui.OutputFlag(cmd, "text", "json")
	return cmd
}
