// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/weft-net/weft/internal/cli/graph"
	"github.com/weft-net/weft/internal/lab/layout"
	"github.com/weft-net/weft/internal/plan/mesh"
	"github.com/weft-net/weft/internal/plural"
)

// MeshStatus is the status of a node's mesh.
type MeshStatus struct {
	Topology mesh.Topology
	// Drift describes differences between the kernel and the topology.
	Drift []string
}

// Diagram draws the lab, with tunnels as additional wires. meshes has the status of meshes by node name, as far as it is
// known.
func (st Status) Diagram(l layout.Layout, meshes map[string]MeshStatus) graph.Diagram {
	d := graph.Diagram{Title: st.title()}
	for _, s := range st.Skipped {
		d.Lines = append(d.Lines, s.Name+": "+s.Reason)
	}
	for _, w := range l.Wires {
		d.Wires = append(d.Wires, graph.Wire{Name: w.Name, Lines: toStrings(w.Prefixes)})
	}
	for _, n := range st.Nodes {
		node := graph.Node{Name: n.Name, Bad: n.Agent != Running || n.Sandbox != Running}
		node.Lines = append([]string{"pod CIDRs"}, toStrings(n.PodCIDRs)...)
		for w, addrs := range n.Wires {
			node.Links = append(node.Links, graph.Link{
				Wire: l.Wires[w].Name, Name: fmt.Sprintf("eth%d", w), Lines: toStrings(addrs),
			})
		}
		if status, ok := meshes[n.Name]; ok {
			status.draw(&d, &node)
		}
		for _, p := range st.Pods {
			if p.Node != n.Name {
				continue
			}
			pod := graph.Pod{
				Name: strings.TrimPrefix(p.Namespace+"/"+p.Name, "default/"), Lines: toStrings(p.IPs), Bad: p.problem() != "",
			}
			if p.HostNetwork {
				pod.Lines = []string{"host network"}
			}
			for _, network := range p.Networks {
				pod.Lines = append(pod.Lines, network.Interface+" in "+network.Name)
				pod.Lines = append(pod.Lines, toStrings(network.IPs)...)
			}
			node.Pods = append(node.Pods, pod)
		}
		d.Nodes = append(d.Nodes, node)
	}
	return d
}

// title returns the heading of the diagram. The default name, lab, is not repeated.
func (st Status) title() string {
	name := "lab"
	if st.Name != name {
		name += " " + st.Name
	}
	return fmt.Sprintf("%s: %s, %s", name, plural.Count(len(st.Nodes), "node", "nodes"),
		plural.Count(len(st.Pods), "pod", "pods"))
}

// draw adds a node's tunnels and their drift.
func (s MeshStatus) draw(d *graph.Diagram, node *graph.Node) {
	node.Lines = append(node.Lines, "backend "+s.Topology.Backend)
	backends, order := map[string]string{}, []string{}
	for _, p := range s.Topology.Peers {
		paths := s.Topology.PeerPaths(p)
		if len(paths) == 0 && !s.Topology.WaitsForAddresses(p) {
			node.Lines, node.Bad = append(node.Lines, "no path to "+p.Name), true
		}
		for _, r := range paths {
			if r.Tunnel && backends[r.Link] == "" {
				backends[r.Link], order = p.Backend, append(order, r.Link)
			}
		}
	}
	for _, link := range order {
		wire := backends[link] + " " + link
		if !slices.ContainsFunc(d.Wires, func(w graph.Wire) bool { return w.Name == wire }) {
			d.Wires = append(d.Wires, graph.Wire{Name: wire, Tunnel: true})
		}
		l := graph.Link{Wire: wire, Name: link}
		for _, a := range s.Topology.Node.Host.Addrs {
			if a.Link == link {
				l.Lines = append(l.Lines, a.Prefix.Addr().String())
			}
		}
		for _, planned := range s.Topology.Node.Host.Links {
			if planned.Name == link && planned.MTU > 0 {
				l.Lines = append(l.Lines, fmt.Sprintf("MTU %d", planned.MTU))
			}
		}
		node.Links = append(node.Links, l)
	}
	for _, b := range s.Drift {
		node.Lines, node.Bad = append(node.Lines, "drift: "+b), true
	}
}

func toStrings[T netip.Addr | netip.Prefix](in []T) []string {
	var out []string
	for _, v := range in {
		out = append(out, fmt.Sprint(v))
	}
	return out
}
