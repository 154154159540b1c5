// SPDX-License-Identifier: Apache-2.0

package graph

import (
	"fmt"
	"strings"
)

// DOT returns the diagram in Graphviz' language.
func (d Diagram) DOT() string {
	var b strings.Builder
	fmt.Fprintf(&b, "graph weft {\n\tgraph [label=%s, labelloc=t, fontname=monospace]\n", label(d.Title, d.Lines))
	b.WriteString("\tnode [shape=box, fontname=monospace, fontsize=10]\n\tedge [fontname=monospace, fontsize=9]\n")
	wires := map[string]int{}
	for i, w := range d.Wires {
		wires[w.Name] = i
		style := "filled"
		if w.Tunnel {
			style = `"filled,dashed"`
		}
		fmt.Fprintf(&b, "\twire%d [label=%s, style=%s, fillcolor=%q, width=4]\n", i, label(w.Name, w.Lines), style,
			shade(i).fill)
	}
	for i, n := range d.Nodes {
		color := "gray40"
		if n.Bad {
			color = "red"
		}
		fmt.Fprintf(&b, "\tsubgraph cluster%d {\n\t\tgraph [label=\"\", color=%s, style=rounded]\n", i, color)
		fmt.Fprintf(&b, "\t\tnode%d [label=%s, shape=plaintext]\n", i, label(n.Name, n.Lines))
		for j, p := range n.Pods {
			color := "gray40"
			if p.Bad {
				color = "red"
			}
			fmt.Fprintf(&b, "\t\tpod%d_%d [label=%s, color=%s]\n\t\tnode%d -- pod%d_%d\n", i, j, label(p.Name, p.Lines),
				color, i, i, j)
		}
		b.WriteString("\t}\n")
		for _, l := range n.Links {
			if w, ok := wires[l.Wire]; ok {
				style := ""
				if d.Wires[w].Tunnel {
					style = ", style=dashed"
				}
				fmt.Fprintf(&b, "\twire%d -- node%d [label=%s, color=%q%s]\n", w, i, label(l.Name, l.Lines), shade(w).line, style)
			}
		}
	}
	b.WriteString("}\n")
	return b.String()
}

func label(name string, lines []string) string {
	text := strings.Join(append([]string{name}, lines...), "\n")
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`).Replace(text) + `"`
}
