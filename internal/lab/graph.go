// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/weft-net/weft/internal/cli/graph"
	"github.com/weft-net/weft/internal/plan/mesh"
)

// Seen is what a node's agent says of its mesh.
type Seen struct {
	Topology mesh.Topology
	// Broken is in what the kernel differs, in words.
	Broken []string
}

// Diagram draws the lab as it is, with the tunnels between nodes as networks of their own; meshes are by the nodes'
// names, and may be missing.
func (st Status) Diagram(l Layout, meshes map[string]Seen) graph.Diagram {
	d := graph.Diagram{Title: "lab " + st.Name}
	for _, w := range l.Wires {
		d.Wires = append(d.Wires, graph.Wire{Name: w.Name, Lines: words(w.Prefixes)})
	}
	for _, n := range st.Nodes {
		node := graph.Node{Name: n.Name, Bad: n.Agent != procRunning || n.Sandbox != procRunning}
		node.Lines = append([]string{"pods from"}, words(n.PodCIDRs)...)
		for w, addrs := range n.Wires {
			node.Links = append(node.Links, graph.Link{
				Wire: l.Wires[w].Name, Name: fmt.Sprintf("eth%d", w), Lines: words(addrs),
			})
		}
		if seen, ok := meshes[n.Name]; ok {
			seen.draw(&d, &node)
		}
		for _, p := range st.Pods {
			if p.Node != n.Name {
				continue
			}
			pod := graph.Pod{
				Name: strings.TrimPrefix(p.Namespace+"/"+p.Name, "default/"), Lines: words(p.IPs), Bad: p.problem() != "",
			}
			if p.HostNetwork {
				pod.Lines = []string{"host network"}
			}
			for _, further := range p.Networks {
				pod.Lines = append(pod.Lines, further.Interface+" in "+further.Name)
				pod.Lines = append(pod.Lines, words(further.IPs)...)
			}
			node.Pods = append(node.Pods, pod)
		}
		d.Nodes = append(d.Nodes, node)
	}
	return d
}

// draw adds a node's tunnels, and what is wrong with them.
func (s Seen) draw(d *graph.Diagram, node *graph.Node) {
	node.Lines = append(node.Lines, "back end "+s.Topology.Backend)
	backends, order := map[string]string{}, []string{}
	for _, p := range s.Topology.Peers {
		reaches := s.Topology.Reaches(p)
		if len(reaches) == 0 && !s.Topology.Awaited(p) {
			node.Lines, node.Bad = append(node.Lines, "does not reach "+p.Name), true
		}
		for _, r := range reaches {
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
		for _, have := range s.Topology.Node.Host.Links {
			if have.Name == link && have.MTU > 0 {
				l.Lines = append(l.Lines, fmt.Sprintf("MTU %d", have.MTU))
			}
		}
		node.Links = append(node.Links, l)
	}
	for _, b := range s.Broken {
		node.Lines, node.Bad = append(node.Lines, "broken: "+b), true
	}
}

func words[T netip.Addr | netip.Prefix](in []T) []string {
	var out []string
	for _, v := range in {
		out = append(out, fmt.Sprint(v))
	}
	return out
}
