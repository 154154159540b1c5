// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/weft-net/weft/internal/graph"
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/plan/mesh"
	"github.com/weft-net/weft/internal/reconcile"
	"github.com/weft-net/weft/internal/state"
)

// meshStateDir is where an agent keeps what it must remember until the next boot.
const meshStateDir = "/run/weft/agent"

func newMeshCmd(env Env) *cobra.Command {
	var stateDir, output string
	cmd := &cobra.Command{
		Use:   "mesh",
		Short: "Show how this node reaches the pods of the other nodes",
		Long: `Shows the plan in force for the mesh of nodes, as the agent last compared it with the kernel: its underlay, what it
does for each peer, whether the kernel agrees, and which facts contradict each other.

Keys of -o json: self, time, error; topology {self, backend, podCIDRs, underlay [{link, address, onLink}],
node {owner, host}, peers [{name, addresses, podCIDRs, fragment {owner, host}}], problems [{nodes, message, hint}]};
fragments [{owner, ok, error}]. A fragment's host holds routes [{dst, gw, link, metric}] and sysctls [{name, value}].`,
		Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			show, err := meshOutput(output)
			if err != nil {
				return err
			}
			status, err := reconcile.ReadStatus(stateDir)
			if err != nil {
				return err
			}
			text, err := show(status)
			if err != nil {
				return err
			}
			_, err = fmt.Fprint(env.Stdout, text)
			return err
		},
	}
	cmd.Flags().StringVar(&stateDir, "state-dir", meshStateDir, "the agent's state directory")
	cmd.Flags().StringVarP(&output, "output", "o", "text", "text, json, dot or svg")
	return cmd
}

func meshOutput(name string) (func(reconcile.Status) (string, error), error) {
	switch name {
	case "text":
		return meshText, nil
	case "json":
		return func(s reconcile.Status) (string, error) {
			b, err := json.MarshalIndent(s, "", "  ")
			return string(b) + "\n", err
		}, nil
	case "dot":
		return func(s reconcile.Status) (string, error) { return meshDiagram(s).DOT(), nil }, nil
	case "svg":
		return func(s reconcile.Status) (string, error) { return meshDiagram(s).SVG(), nil }, nil
	}
	return nil, usageError{model.Faultf(model.CodeInvalidConf, "give text, json, dot or svg", "-o %q is no output format", name)}
}

func meshText(s reconcile.Status) (string, error) {
	out := s.Topology.Text()
	for _, f := range s.Fragments {
		if !f.OK {
			out += fmt.Sprintf("not in force: %s: %s\n", f.Owner, f.Error)
		}
	}
	if s.Error != "" {
		out += fmt.Sprintf("error: %s\n", s.Error)
	}
	return out + fmt.Sprintf("compared with the kernel at %s\n", s.Time.Format(time.RFC3339)), nil
}

// meshDiagram draws the topology as seen from self: its underlays are the wires.
func meshDiagram(s reconcile.Status) graph.Diagram {
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
		self.Links[i].Lines = append(self.Links[i].Lines, u.Address.String())
		for _, p := range u.OnLink {
			d.Wires[i].Lines = append(d.Wires[i].Lines, p.String())
		}
	}
	for _, c := range t.PodCIDRs {
		self.Lines = append(self.Lines, "pods "+c.String())
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

// peerBox is a peer with the links that its pods are reached over.
func peerBox(s reconcile.Status, p mesh.Peer) graph.Node {
	n := graph.Node{Name: p.Name, Bad: troubled(s, p.Name, p.Fragment.Owner)}
	for _, r := range p.Fragment.Host.Routes {
		via := r.Gw.String()
		i := slices.IndexFunc(n.Links, func(l graph.Link) bool { return l.Wire == r.Link })
		if i < 0 {
			i = len(n.Links)
			n.Links = append(n.Links, graph.Link{Wire: r.Link})
		}
		if !slices.Contains(n.Links[i].Lines, via) {
			n.Links[i].Lines = append(n.Links[i].Lines, via)
		}
	}
	for _, c := range p.PodCIDRs {
		word := "not reached "
		if slices.ContainsFunc(p.Fragment.Host.Routes, func(r state.Route) bool { return r.Dst == c }) {
			word = "pods "
		}
		n.Lines = append(n.Lines, word+c.String())
	}
	return n
}

// troubled tells whether a problem is about the node or its fragment is not in force.
func troubled(s reconcile.Status, node, owner string) bool {
	return slices.ContainsFunc(s.Topology.Problems, func(p mesh.Problem) bool { return slices.Contains(p.Nodes, node) }) ||
		slices.ContainsFunc(s.Fragments, func(f reconcile.FragmentStatus) bool { return f.Owner == owner && !f.OK })
}
