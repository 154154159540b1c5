// SPDX-License-Identifier: Apache-2.0

package command

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/weft-net/weft/internal/cli/ui"
	"github.com/weft-net/weft/internal/lab"
	"github.com/weft-net/weft/internal/lab/reach"
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/netns"
	"github.com/weft-net/weft/internal/node/reconcile"
	"github.com/weft-net/weft/internal/sandbox/container"
)

// printReach prints who reaches whom as a table, one row for who sends and one column for who answers.
func printReach(out io.Writer, r reach.Report) error {
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
	fmt.Fprintf(out, "\n%d of %d pairs reach (ok: ICMP, TCP and UDP in every family that both have)\n", r.Reached, r.Pairs)
	if r.Denied > 0 {
		fmt.Fprintf(out, "%d are denied by policies, as they should be (deny; n/m deny: the others reach)\n", r.Denied)
	}
	for _, f := range r.Failed {
		if f.Expected {
			fmt.Fprintf(out, "%s to %s by %s should reach: %s\n", f.From, f.To, f.Proto, f.Error)
		}
	}
	for _, f := range r.Leaked {
		fmt.Fprintf(out, "%s to %s by %s should not reach: %s\n", f.From, f.To, f.Proto, f.Error)
	}
	for _, n := range r.Networks {
		fmt.Fprintf(out, "\nin network %s\n", n.Network)
		if err := printReach(out, n.Report); err != nil {
			return err
		}
	}
	for _, s := range r.Skipped {
		fmt.Fprintf(out, "skip %s: %s\n", s.Name, s.Reason)
	}
	return nil
}

func cellText(self bool, c reach.Cell) string {
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

func reachFault(r reach.Report) error {
	n, pairs, leaked := 0, 0, 0
	count := func(r reach.Report) {
		pairs, leaked = pairs+r.Pairs, leaked+len(r.Leaked)
		for _, f := range r.Failed {
			if f.Expected {
				n++
			}
		}
	}
	count(r)
	for _, further := range r.Networks {
		count(further.Report)
	}
	return model.Faultf(
		model.CodeInternal, "look at `weft lab status`, `weft lab exec NODE -- ip route` and the logs below nodes/",
		"reach: %d of %d pairs do not reach though they should, and %d reach though they should not", n, pairs, leaked)
}

func newLabGraphCmd(env ui.Env, f *labFlags) *cobra.Command {
	var output *string
	cmd := &cobra.Command{
		Use:   "graph",
		Short: "Draw wires, tunnels, nodes and pods as dot or SVG, or list them",
		Long: "Draws the lab as it is: wires, the tunnels between nodes, nodes with their mesh and pods. What the kernel of a node holds\n" +
			"otherwise than the node's agent wants is written into its box.\n\n" +
			"Keys of -o json: title, lines, wires [{name, lines, tunnel}], nodes [{name, lines, bad, links [{wire, name, lines}],\n" +
			"pods [{name, lines, bad}]}].",
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
			picture := st.Diagram(m.Layout, labMeshes(cmd.Context(), d, st))
			form := map[string]func() string{"dot": picture.DOT, "svg": picture.SVG, "text": picture.Text, "json": picture.JSON}
			_, err = io.WriteString(env.Stdout, form[*output]())
			return err
		},
	}
	output = ui.OutputFlag(cmd, "dot", "svg", "text", "json")
	return cmd
}

// labMeshes asks each node's agent, and each node's kernel. A node that has no mesh is left out.
func labMeshes(ctx context.Context, d lab.Dir, st lab.Status) map[string]lab.Seen {
	out := map[string]lab.Seen{}
	for _, n := range st.Nodes {
		status, err := reconcile.AskStatus(ctx, d.Node(n.Name, "agent"))
		if err != nil {
			continue
		}
		seen := lab.Seen{Topology: status.Topology}
		ns, err := netns.Open(n.Netns)
		if err == nil {
			var broken []reconcile.Broken
			broken, err = reconcile.Compare(ctx, ns, status.Topology)
			for _, b := range broken {
				seen.Broken = append(seen.Broken, b.String())
			}
			err = errors.Join(err, ns.Close())
		}
		if err != nil {
			seen.Broken = append(seen.Broken, err.Error())
		}
		out[n.Name] = seen
	}
	return out
}

func newLabExecCmd(env ui.Env, f *labFlags) *cobra.Command {
	var name string
	cmd := &cobra.Command{
		Use:   "exec NODE|POD [flags] -- COMMAND [ARG…]",
		Short: "Run a command in a node's or a pod's namespaces",
		Long: "Runs a command in the network namespace of a node, or in the namespaces of a pod (NAME or NAMESPACE/NAME). It\n" +
			"exits as the command does.",
		Example: "  weft lab exec node1 -- ip route\n  weft lab exec default/web -- ping -c1 10.42.2.2",
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) < 2 || cmd.ArgsLenAtDash() > 1 {
				return ui.UsageError(errors.New("say where and what: weft lab exec NODE|POD -- COMMAND"))
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
	cmd.Flags().StringVarP(&name, "container", "c", "", "container of the pod; its first one when not given")
	return cmd
}

// execIn runs a command in a node's network namespace, or in the namespaces of a pod's container.
func execIn(ctx context.Context, env ui.Env, d lab.Dir, at lab.Place, name string, argv []string) error {
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
	c.Stdin, c.Stdout, c.Stderr, c.Env = env.Stdin, env.Stdout, env.Stderr, os.Environ()
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
