// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"fmt"
	"io"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/weft-net/weft/internal/cli/agents"
	"github.com/weft-net/weft/internal/cli/graph"
	"github.com/weft-net/weft/internal/cli/printer"
	"github.com/weft-net/weft/internal/cli/ui"
	"github.com/weft-net/weft/internal/node/reconcile"
	"github.com/weft-net/weft/internal/plan/mesh"
)

// Formats of weft mesh.
const (
	dot = "dot" // of Graphviz
	svg = "svg"
)

// meshStateDir is the agent's state directory in the manifests, which a reboot clears.
const meshStateDir = "/run/weft/agent"

func newMeshCmd(env Env) *cobra.Command {
	var stateDir string
	var output *printer.Format
	var watch *printer.Watch
	var live bool
	cmd := &cobra.Command{
		Use:   "mesh",
		Short: "Show how this node reaches the pods of its peers",
		Long: `Shows the mesh as the agent last reconciled it: the underlay, the backend, MTU and routes of each peer, differences
between the plan and the kernel, and facts that contradict each other. -o wide prints a table of the peers instead, -o name
their names. With --live it compares the plan with the kernel
now, in the network namespace in which the command runs, and prints each difference. With --node it runs on that node.

Keys of -o json: self, time, error; topology {self, backend, mtu, podCIDRs, underlay [{link, address, onLink, mtu}],
lost, node {owner, host}, peers [{name, backend, addresses, podCIDRs, fragment {owner, host}}], problems [{nodes,
message, hint}]}; fragments [{owner, ok, error}]; with --live broken [{owner, want, have}]. A fragment's host holds
routes [{dst, gw, link, metric}], neighs [{link, ip, mac}], fdbs [{link, mac, dst}] and sysctls [{name, value}].`,
		Example: "  weft mesh --live\n" +
			"  weft mesh -o wide --watch\n" +
			"  weft mesh --node node2\n" +
			"  weft mesh --state-dir /run/weft/lab/nodes/node1/agent -o svg",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if watch.On() && (output.Is(dot) || output.Is(svg)) {
				return ui.Misusef("leave out --watch, or use -o wide", "--watch does not draw")
			}
			var view meshView
			query := func(ctx context.Context) (_ printer.Result, err error) {
				if view.Status, err = reconcile.AskStatus(ctx, stateDir); err != nil {
					return printer.Result{}, err
				}
				if live {
					if view.Broken, err = reconcile.Compare(ctx, nil, view.Topology); err != nil {
						return printer.Result{}, err
					}
					view.Time, view.live = time.Now(), true
				}
				return view.result(output, watch.On()), nil
			}
			if output.Is(dot) || output.Is(svg) {
				if _, err := query(cmd.Context()); err != nil {
					return err
				}
				return view.draw(env.Stdout, output)
			}
			return watch.Show(cmd.Context(), env.Stdout, env.Stderr, query)
		},
	}
	cmd.Flags().StringVar(&stateDir, "state-dir", env.Variable(ui.StateDirVariable, meshStateDir), "state `DIR` of the agent")
	output = printer.Objects(cmd.Flags(), true, dot, svg)
	watch = output.Watch(cmd.Flags())
	cmd.Flags().BoolVar(&live, "live", false, "compare with the kernel now")
	agents.OnNode(env, cmd, "state-dir")
	cmd.AddCommand(newMeshPingCmd(env))
	return cmd
}

// meshView is the status of the mesh, with --live compared with the kernel.
type meshView struct {
	reconcile.Status
	// Broken is the drift of the kernel, with --live only.
	Broken []reconcile.Broken `json:"broken,omitempty"`
	live   bool
}

// draw prints the view as a diagram.
func (v meshView) draw(w io.Writer, output *printer.Format) error {
	text := meshDiagram(v).DOT()
	if output.Is(svg) {
		text = meshDiagram(v).SVG()
	}
	_, err := io.WriteString(w, text)
	return err
}

// result is the view in the other formats of weft mesh. What is compared again and again has no time.
func (v meshView) result(output *printer.Format, watched bool) printer.Result {
	timeless := v
	timeless.Time = time.Time{}
	r := printer.Result{Document: v, Same: timeless}
	if output.Is(printer.Wide) || output.Is(printer.Name) {
		r.Tables = []printer.Table{v.peers()}
	} else {
		r.Lines = planLines(v.Topology.Text())
	}
	problem := func(format string, args ...any) {
		text := fmt.Sprintf(format, args...)
		r.Lines = append(r.Lines, printer.Line{Text: text, Gone: "no longer reported: " + text})
	}
	for _, f := range v.Fragments {
		if !f.OK {
			problem("not applied: %s: %s", f.Owner, f.Error)
		}
	}
	for _, b := range v.Broken {
		problem("drift: %s: %s", b.Owner, b)
	}
	if v.Error != "" {
		problem("error: %s", v.Error)
	}
	if !watched {
		r.Lines = append(r.Lines, printer.Line{Text: "compared with the kernel at " + v.Time.Format(time.RFC3339)})
	}
	return r
}

// planLines divides the text of a plan into nodes, peers and problems: lines with those that are indented below them.
func planLines(text string) []printer.Line {
	var out []printer.Line
	for line := range strings.Lines(text) {
		line = strings.TrimSuffix(line, "\n")
		if strings.HasPrefix(line, " ") && len(out) > 0 {
			out[len(out)-1].Text += "\n" + line
			continue
		}
		key, _, _ := strings.Cut(line, ",") // of a peer, its name
		l := printer.Line{Key: key, Text: line}
		if strings.HasPrefix(line, "problem: ") {
			l.Key = line
			l.Gone = "no longer reported: " + line
		} else {
			l.Gone = key + " is gone"
		}
		out = append(out, l)
	}
	return out
}

// peers returns the peers as a table: a row for each, with what its paths have in common.
func (v meshView) peers() printer.Table {
	t := printer.Table{Header: []string{"PEER", "STATE", "BACKEND", "ADDRESSES", "PODS", "LINK", "MTU"}}
	for _, p := range v.Topology.Peers {
		var links, mtus, pods []string
		for _, path := range v.Topology.PeerPaths(p) {
			links = append(links, path.Link)
			if path.MTU > 0 {
				mtus = append(mtus, strconv.Itoa(path.MTU))
			}
		}
		for _, c := range slices.Concat(p.PodCIDRs, p.Blocks) {
			pods = append(pods, c.String())
		}
		var addrs []string
		for _, a := range p.Addrs {
			addrs = append(addrs, a.String())
		}
		state := "ok"
		switch {
		case hasProblem(v, p.Name, p.Fragment().Owner):
			state = "bad"
		case v.Topology.WaitsForAddresses(p):
			state = "no addresses"
		case len(links) == 0:
			state = "not reached"
		}
		t.Row(p.Name, p.Name, state, p.Backend, strings.Join(addrs, ","), strings.Join(pods, ","), each(links), each(mtus))
	}
	return t
}

// each joins different words with commas.
func each(words []string) string {
	slices.Sort(words)
	return strings.Join(slices.Compact(words), ",")
}

// meshDiagram returns a diagram of the topology as this node sees it. Its underlays are the wires.
func meshDiagram(s meshView) graph.Diagram {
	t := s.Topology
	d := graph.Diagram{Title: "mesh of node " + t.Self, Lines: []string{"backend " + t.Backend}}
	self := graph.Node{Name: t.Self, Lines: []string{"this node"}}
	for _, u := range t.Underlay {
		i := slices.IndexFunc(self.Links, func(l graph.Link) bool { return l.Name == u.Link })
		if i < 0 {
			i = len(self.Links)
			self.Links = append(self.Links, graph.Link{Wire: u.Link, Name: u.Link})
			d.Wires = append(d.Wires, graph.Wire{Name: u.Link})
		}
		self.Links[i].Lines = append(self.Links[i].Lines, fmt.Sprintf("%s MTU %d", u.Address, u.MTU))
		for _, p := range u.OnLink {
			d.Wires[i].Lines = append(d.Wires[i].Lines, p.String())
		}
	}
	for _, c := range slices.Concat(t.PodCIDRs, t.Blocks) {
		self.Lines = append(self.Lines, "pods "+c.String())
	}
	for _, l := range t.Node.Host.Links {
		d.Wires = append(d.Wires, graph.Wire{Name: l.Name, Lines: []string{string(l.Kind)}, Tunnel: true})
		self.Links = append(self.Links, graph.Link{Wire: l.Name, Name: l.Name, Lines: []string{fmt.Sprintf("MTU %d", l.MTU)}})
	}
	for _, b := range s.Broken {
		if b.Owner == mesh.OwnerNode {
			self.Lines = append(self.Lines, "drift: "+b.String())
		}
	}
	self.Bad = hasProblem(s, t.Self, mesh.OwnerNode)
	d.Nodes = append(d.Nodes, self)
	for _, p := range t.Peers {
		d.Nodes = append(d.Nodes, peerBox(s, p))
	}
	for _, p := range t.Problems {
		d.Lines = append(d.Lines, "problem: "+p.Message)
	}
	return d
}

// peerBox returns the box of a peer: the backend, link, gateway and MTU of its pods' prefixes.
func peerBox(s meshView, p *mesh.Peer) graph.Node {
	n := graph.Node{Name: p.Name, Bad: hasProblem(s, p.Name, p.Fragment().Owner)}
	if p.Backend != "" {
		n.Lines = append(n.Lines, "by "+p.Backend)
	}
	reached := map[netip.Prefix]bool{}
	for _, r := range s.Topology.PeerPaths(p) {
		reached[r.CIDR] = true
		line := r.Far.String()
		if r.MTU > 0 {
			line += fmt.Sprintf(" MTU %d", r.MTU)
		}
		wire := r.Underlay.Link
		if r.Tunnel {
			wire = r.Link
		}
		i := slices.IndexFunc(n.Links, func(l graph.Link) bool { return l.Wire == wire })
		if i < 0 {
			i = len(n.Links)
			n.Links = append(n.Links, graph.Link{Wire: wire})
		}
		n.Links[i].Lines = append(n.Links[i].Lines, line)
	}
	for _, c := range slices.Concat(p.PodCIDRs, p.Blocks) {
		word := "not reached "
		if reached[c] {
			word = "pods "
		}
		n.Lines = append(n.Lines, word+c.String())
	}
	for _, b := range s.Broken {
		if b.Owner == p.Fragment().Owner {
			n.Lines = append(n.Lines, "drift: "+b.String())
		}
	}
	return n
}

// hasProblem reports whether a problem names the node, or its fragment is not applied.
func hasProblem(s meshView, node, owner string) bool {
	return slices.ContainsFunc(s.Topology.Problems, func(p mesh.Problem) bool { return slices.Contains(p.Nodes, node) }) ||
		slices.ContainsFunc(s.Broken, func(b reconcile.Broken) bool { return b.Owner == owner }) ||
		!s.live && slices.ContainsFunc(s.Fragments, func(f reconcile.FragmentStatus) bool {
			return f.Owner == owner && !f.OK
		})
}
