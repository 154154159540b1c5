// SPDX-License-Identifier: Apache-2.0

package command

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/weft-net/weft/internal/cli/complete"
	"github.com/weft-net/weft/internal/cli/graph"
	"github.com/weft-net/weft/internal/cli/printer"
	"github.com/weft-net/weft/internal/cli/ui"
	"github.com/weft-net/weft/internal/lab"
	"github.com/weft-net/weft/internal/lab/connectivity"
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/netns"
	"github.com/weft-net/weft/internal/node/reconcile"
	"github.com/weft-net/weft/internal/sandbox/container"
)

// printConnectivity prints a table of the results, with a row for each sender and a column for each receiver.
func printConnectivity(out io.Writer, r connectivity.Report) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprint(w, "\tFROM \\ TO")
	for i := range r.Names {
		fmt.Fprintf(w, "\t%d", i+1)
	}
	fmt.Fprintln(w)
	for i, name := range r.Names {
		fmt.Fprintf(w, "%d\t%s", i+1, name)
		for j := range r.Names {
			fmt.Fprintf(w, "\t%s", cellText(i == j, r.Cells[i][j]))
		}
		fmt.Fprintln(w)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	fmt.Fprintf(out, "\n%d of %d pairs are reachable (ok: ICMP, TCP and UDP in every family that both have)\n", r.Reached,
		r.Pairs)
	if r.Denied > 0 {
		fmt.Fprintf(out, "%d are denied by policies, as expected (n/m deny: n of m are reachable, the others denied)\n", r.Denied)
	}
	for _, f := range r.Failed {
		if f.Expected {
			fmt.Fprintf(out, "%s to %s by %s failed: %s\n", f.From, f.To, f.Proto, f.Error)
		}
	}
	for _, f := range r.Leaked {
		fmt.Fprintf(out, "%s to %s by %s should fail: %s\n", f.From, f.To, f.Proto, f.Error)
	}
	for _, n := range r.Networks {
		fmt.Fprintf(out, "\nnetwork %s\n", n.Network)
		if err := printConnectivity(out, n.Report); err != nil {
			return err
		}
	}
	printSkipped(out, "", r.Skipped)
	return nil
}

func cellText(self bool, c connectivity.Cell) string {
	switch {
	case self:
		return "·"
	case c.Pairs == 0:
		return "-"
	case c.Leaked > 0:
		return "leak"
	case c.Reached == c.Pairs:
		return "ok"
	case c.Denied == c.Pairs:
		return "deny"
	case c.Reached+c.Denied == c.Pairs:
		return fmt.Sprintf("%d/%d deny", c.Reached, c.Pairs)
	}
	return fmt.Sprintf("%d/%d", c.Reached, c.Pairs)
}

func connectivityError(r connectivity.Report) error {
	n, pairs, leaked := 0, 0, 0
	count := func(r connectivity.Report) {
		pairs, leaked = pairs+r.Pairs, leaked+len(r.Leaked)
		for _, f := range r.Failed {
			if f.Expected {
				n++
			}
		}
	}
	count(r)
	for _, network := range r.Networks {
		count(network.Report)
	}
	return model.Errorf(
		model.CodeInternal, "see `weft lab status`, `weft lab exec NODE -- ip route` and the logs in nodes/",
		"%d of %d pairs failed, and %d are reachable although policies deny them", n, pairs, leaked)
}

func newLabGraphCmd(env ui.Env, f *labFlags) *cobra.Command {
	var output *printer.Format
	cmd := &cobra.Command{
		Use:   "graph",
		Short: "Draw wires, tunnels, nodes and pods as dot or SVG, or list them",
		Long: "Draws the lab: wires, the tunnels between nodes, nodes with their mesh and pods. A node's box lists the drift between\n" +
			"its kernel and its agent's plan.\n\n" +
			"Keys of -o json: title, lines, wires [{name, lines, tunnel}], nodes [{name, lines, bad, links [{wire, name, lines}],\n" +
			"pods [{name, lines, bad}]}].",
		Example: "  weft lab graph -o svg\n" +
			"  weft lab graph -o text",
		Args: ui.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			d, err := lab.At(f.dir)
			if err != nil {
				return err
			}
			m, err := d.Open()
			if err != nil {
				return err
			}
			st, err := d.Status(cmd.Context())
			if err != nil {
				return err
			}
			g := st.Diagram(m.Layout, labMeshes(cmd.Context(), d, st))
			return printDiagram(env.Stdout, output, g)
		},
	}
	output = printer.Flag(cmd.Flags(), dot, svg, printer.Text, printer.JSON)
	return cmd
}

// labMeshes reads the mesh of each node from its agent and compares it with the kernel. It skips nodes without a mesh.
func labMeshes(ctx context.Context, d lab.Dir, st lab.Status) map[string]lab.MeshStatus {
	out := map[string]lab.MeshStatus{}
	for _, n := range st.Nodes {
		status, err := reconcile.AskStatus(ctx, d.Node(n.Name, "agent"))
		if err != nil {
			continue
		}
		mesh := lab.MeshStatus{Topology: status.Topology}
		ns, err := netns.Open(n.Netns)
		if err == nil {
			var broken []reconcile.Broken
			broken, err = reconcile.Compare(ctx, ns, status.Topology)
			for _, b := range broken {
				mesh.Drift = append(mesh.Drift, b.String())
			}
			err = errors.Join(err, ns.Close())
		}
		if err != nil {
			mesh.Drift = append(mesh.Drift, err.Error())
		}
		out[n.Name] = mesh
	}
	return out
}

func newLabExecCmd(env ui.Env, f *labFlags) *cobra.Command {
	var name string
	cmd := &cobra.Command{
		Use:   "exec NODE|POD [flags] -- COMMAND [ARG…]",
		Short: "Run a command in a node's or a pod's namespaces",
		Long: "Runs a command in the network namespace of a node or a router, or in the namespaces of a pod (NAME or NAMESPACE/NAME),\n" +
			"and exits with its exit code. On a node weft finds the node's agent and the lab, by WEFT_STATE_DIR, WEFT_SOCKET and\n" +
			"WEFT_LAB.",
		Example: "  weft lab exec node1 -- ip route\n  weft lab exec default/web -- ping -c1 10.42.2.2\n" +
			"  weft lab exec node1 -- weft doctor",
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) < 2 || cmd.ArgsLenAtDash() > 1 {
				return missingCommand(args, "NODE|POD", "weft lab exec node1 -- ip route")
			}
			d, err := lab.At(f.dir)
			if err != nil {
				return err
			}
			st, err := d.Status(cmd.Context())
			if err != nil {
				return err
			}
			at, err := st.Find(args[0])
			if err != nil {
				return err
			}
			return execIn(cmd.Context(), env, d, at, name, args[1:])
		},
	}
	cmd.Flags().StringVarP(&name, "container", "c", "", "`NAME` of the pod's container (default: the first regular one)")
	cmd.ValidArgsFunction = complete.Args(f.nodesAndPods)
	return cmd
}

// missingCommand returns the usage error for an exec without a location, or without a command.
func missingCommand(args []string, location, example string) error {
	missing := "COMMAND"
	if len(args) == 0 || args[0] == "--" {
		missing = location
	}
	return ui.Misusef("for example `"+example+"`", "argument %s is missing", missing)
}

// execIn runs a command in a node's network namespace, or in the namespaces of a pod's container.
func execIn(ctx context.Context, env ui.Env, d lab.Dir, at lab.Location, name string, argv []string) error {
	if at.Pod != "" {
		return execInPod(ctx, env, d.Sandboxes(at.Node), at.Namespace, at.Pod, name, argv)
	}
	if name != "" {
		return ui.UsageError(fmt.Errorf("--container %q: %s is a node", name, at.Name))
	}
	ns, err := netns.Open(at.Netns)
	if err != nil {
		return err
	}
	defer func() { _ = ns.Close() }()
	c := exec.Command(argv[0], argv[1:]...)
	c.Stdin, c.Stdout, c.Stderr = env.Stdin, env.Stdout, env.Stderr
	// weft finds the agent of that node, and the lab.
	c.Env = append(os.Environ(), ui.LabVariable+"="+string(d), ui.SocketVariable+"="+d.AgentSocket(at.Node),
		ui.StateDirVariable+"="+filepath.Dir(d.AgentSocket(at.Node)))
	if err = ns.Do(c.Start); err == nil {
		err = c.Wait()
	}
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return ui.Exit(container.ExitCode(exit.ProcessState))
	}
	if err != nil {
		return fmt.Errorf("command %q: %w", argv[0], err)
	}
	return nil
}

// Formats of a diagram.
const (
	dot = "dot" // of Graphviz
	svg = "svg"
)

func printDiagram(w io.Writer, output *printer.Format, g graph.Diagram) error {
	var text string
	switch {
	case output.Document():
		return output.Print(w, g)
	case output.Is(dot):
		text = g.DOT()
	case output.Is(svg):
		text = g.SVG()
	default:
		text = g.Text()
	}
	_, err := io.WriteString(w, text)
	return err
}
