// SPDX-License-Identifier: Apache-2.0

// Package graph draws a cluster: wires as bars, nodes as boxes that hang on them, pods as boxes inside. The same diagram
// is written as dot for Graphviz and, with a layout of its own, as SVG that any browser shows; no external program is
// needed. Output depends on the diagram alone.
//
//	wire ─┬──────────────────┬────────
//	wire ─┼──┬───────────────┼──┬─────
//	    ┌─┴──┴─────┐       ┌─┴──┴─────┐
//	    │ node     │       │ node     │
//	    │ [pod]    │       │ [pod]    │
//	    └──────────┘       └──────────┘
package graph

// Diagram is what is drawn.
type Diagram struct {
	Title string
	Lines []string // below the title
	Wires []Wire   // from top to bottom
	Nodes []Node   // from left to right
}

// Wire is a network that nodes hang on.
type Wire struct {
	Name  string
	Lines []string // behind the name
	// Tunnel draws the network as one that runs through others.
	Tunnel bool
}

// Node is a machine.
type Node struct {
	Name  string
	Lines []string
	Links []Link
	Pods  []Pod
	// Bad draws the node as one that something is wrong with.
	Bad bool
}

// Link is a node's connection to a wire. One to a wire that the diagram does not have is drawn without a line.
type Link struct {
	Wire  string
	Name  string // the interface
	Lines []string
}

// Pod is a box inside a node.
type Pod struct {
	Name  string
	Lines []string
	Bad   bool
}
