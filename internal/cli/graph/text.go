// SPDX-License-Identifier: Apache-2.0

package graph

import (
	"fmt"
	"strings"
)

// Text returns the diagram as indented lines.
func (d Diagram) Text() string {
	var b strings.Builder
	line := func(indent int, what string, words ...string) {
		fmt.Fprintln(&b, strings.TrimRight(strings.Repeat("  ", indent)+what+"  "+strings.Join(words, ", "), " "))
	}
	line(0, d.Title, d.Lines...)
	for _, w := range d.Wires {
		kind := "wire "
		if w.Tunnel {
			kind = "tunnel "
		}
		line(0, kind+w.Name, w.Lines...)
	}
	for _, n := range d.Nodes {
		line(0, bad("node "+n.Name, n.Bad))
		for _, l := range n.Lines {
			line(1, l)
		}
		for _, l := range n.Links {
			line(1, l.Name+" on "+l.Wire, l.Lines...)
		}
		for _, p := range n.Pods {
			line(1, bad("pod "+p.Name, p.Bad), p.Lines...)
		}
	}
	return b.String()
}

func bad(name string, is bool) string {
	if is {
		return name + " (!)"
	}
	return name
}
