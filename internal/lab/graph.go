// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"fmt"
	"net/netip"
	"strings"

	"github.com/weft-net/weft/internal/graph"
)

// Diagram draws the lab as it is.
func (st Status) Diagram(l Layout) graph.Diagram {
	d := graph.Diagram{Title: "lab " + st.Name}
	for _, w := range l.Wires {
		d.Wires = append(d.Wires, graph.Wire{Name: w.Name, Lines: words(w.Prefixes)})
	}
	for _, n := range st.Nodes {
		node := graph.Node{Name: n.Name, Bad: n.Agent != "running" || n.Sandbox != "running"}
		node.Lines = append([]string{"pods from"}, words(n.PodCIDRs)...)
		for w, addrs := range n.Wires {
			node.Links = append(node.Links, graph.Link{Wire: l.Wires[w].Name, Name: fmt.Sprintf("eth%d", w), Lines: words(addrs)})
		}
		for _, p := range st.Pods {
			if p.Node != n.Name {
				continue
			}
			pod := graph.Pod{Name: strings.TrimPrefix(p.Namespace+"/"+p.Name, "default/"), Lines: words(p.IPs), Bad: p.problem() != ""}
			if p.HostNetwork {
				pod.Lines = []string{"host network"}
			}
			node.Pods = append(node.Pods, pod)
		}
		d.Nodes = append(d.Nodes, node)
	}
	return d
}

func words[T netip.Addr | netip.Prefix](in []T) []string {
	var out []string
	for _, v := range in {
		out = append(out, fmt.Sprint(v))
	}
	return out
}
