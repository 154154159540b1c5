// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/weft-net/weft/internal/cli/graph"
	"github.com/weft-net/weft/internal/cli/ui"
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/node/reconcile"
	"github.com/weft-net/weft/internal/plan/mesh"
)

// meshStateDir is where an agent keeps what it must remember until the next boot.
const meshStateDir = "/run/weft/agent"

func newMeshCmd(env Env) *cobra.Command {
	var stateDir, output string
	var live bool
	cmd := &cobra.Command{
		Use:   "mesh",
		Short: "Show how this node reaches the pods of the other nodes",
		Long: `Shows the plan in force for the mesh of nodes, as the agent last compared it with the kernel: its underlay,
by which back end and with which MTU each peer is reached, over which routes, whether the kernel agrees, and which
facts contradict each other. With --live the kernel is asked now, in the network namespace that the command runs in,
and each thing in which it differs is told.

Keys of -o json: self, time, error; topology {self, backend, mtu, podCIDRs, underlay [{link, address, onLink, mtu}],
lost, node {owner, host}, peers [{name, backend, addresses, podCIDRs, fragment {owner, host}}], problems [{nodes,
message, hint}]}; fragments [{owner, ok, error}]; with --live broken [{owner, want, have}]. A fragment's host holds
routes [{dst, gw, link, metric}], neighs [{link, ip, mac}], fdbs [{link, mac, dst}] and sysctls [{name, value}].`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			show, err := meshOutput(output)
			if err != nil {
				return err
			}
			status, err := reconcile.AskStatus(cmd.Context(), stateDir)
			if err != nil {
				return err
			}
			seen := meshSeen{Status: status}
			if live {
				if seen.Broken, err = reconcile.Compare(cmd.Context(), nil, status.Topology); err != nil {
					return err
				}
				seen.Time, seen.live = time.Now(), true
			}
			text, err := show(seen)
			if err != nil {
				return err
			}
			_, err = fmt.Fprint(env.Stdout, text)
			return err
		},
	}
	cmd.Flags().StringVar(&stateDir, "state-dir", meshStateDir, "the agent's state directory")
	cmd.Flags().StringVarP(&output, "output", "o", "text", "text, json, dot or svg")
	cmd.Flags().BoolVar(&live, "live", false, "ask the kernel now")
	cmd.AddCommand(newMeshPingCmd(env))
	return cmd
}

// meshSeen is a status, and what the kernel said beside it.
type meshSeen struct {
	reconcile.Status
	// Broken is where the kernel differs; only live.
	Broken []reconcile.Broken `json:"broken,omitempty"`
	live   bool
}

func meshOutput(name string) (func(meshSeen) (string, error), error) {
	switch name {
	case "text":
		return meshText, nil
	case "json":
		return func(s meshSeen) (string, error) {
			b, err := json.MarshalIndent(s, "", "  ")
			return string(b) + "\n", err
		}, nil
	case "dot":
		return func(s meshSeen) (string, error) { return meshDiagram(s).DOT(), nil }, nil
	case "svg":
		return func(s meshSeen) (string, error) { return meshDiagram(s).SVG(), nil }, nil
	}
	return nil, ui.UsageError(
		model.Faultf(model.CodeInvalidConf, "give text, json, dot or svg", "-o %q is no output format", name),
	)
}

func meshText(s meshSeen) (string, error) {
	out := s.Topology.Text()
	for _, f := range s.Fragments {
		if !f.OK {
			out += fmt.Sprintf("not in force: %s: %s\n", f.Owner, f.Error)
		}
	}
	for _, b := range s.Broken {
		out += fmt.Sprintf("broken: %s: %s\n", b.Owner, b)
	}
	if s.Error != "" {
		out += fmt.Sprintf("error: %s\n", s.Error)
	}
	return out + fmt.Sprintf("compared with the kernel at %s\n", s.Time.Format(time.RFC3339)), nil
}

// meshDiagram draws the topology as seen from self: its underlays are the wires.
func meshDiagram(s meshSeen) graph.Diagram {
	t := s.Topology
	d := graph.Diagram{Title: "mesh of node " + t.Self, Lines: []string{"back end " + t.Backend}}
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
			self.Lines = append(self.Lines, "broken: "+b.String())
		}
	}
	self.Bad = troubled(s, t.Self, mesh.OwnerNode)
	d.Nodes = append(d.Nodes, self)
	for _, p := range t.Peers {
		d.Nodes = append(d.Nodes, peerBox(s, p))
	}
	for _, p := range t.Problems {
		d.Lines = append(d.Lines, "problem: "+p.Message)
	}
	return d
}

// peerBox is a peer with how its pods are reached: back end, link, gateway, MTU.
func peerBox(s meshSeen, p mesh.Peer) graph.Node {
	n := graph.Node{Name: p.Name, Bad: troubled(s, p.Name, p.Fragment.Owner)}
	if p.Backend != "" {
		n.Lines = append(n.Lines, "by "+p.Backend)
	}
	reached := map[netip.Prefix]bool{}
	for _, r := range s.Topology.Reaches(p) {
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
		if b.Owner == p.Fragment.Owner {
			n.Lines = append(n.Lines, "broken: "+b.String())
		}
	}
	return n
}

// troubled tells whether a problem is about the node or its fragment is not in force.
func troubled(s meshSeen, node, owner string) bool {
	return slices.ContainsFunc(s.Topology.Problems, func(p mesh.Problem) bool { return slices.Contains(p.Nodes, node) }) ||
		slices.ContainsFunc(s.Broken, func(b reconcile.Broken) bool { return b.Owner == owner }) ||
		!s.live && slices.ContainsFunc(s.Fragments, func(f reconcile.FragmentStatus) bool {
			return f.Owner == owner && !f.OK
		})
}
