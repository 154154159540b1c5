// SPDX-License-Identifier: Apache-2.0

// Package graph draws a cluster: wires as bars, nodes as boxes that hang on them, pods as boxes inside. The same
// diagram is written as dot for Graphviz and, with a layout of its own, as SVG that any browser shows; no external
// program is needed; it is also told as text and as JSON. Output depends on the diagram alone.
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
	Title string   `json:"title"`
	Lines []string `json:"lines,omitempty"` // below the title
	Wires []Wire   `json:"wires"`           // from top to bottom
	Nodes []Node   `json:"nodes"`           // from left to right
}

// Wire is a network that nodes hang on.
type Wire struct {
	Name  string   `json:"name"`
	Lines []string `json:"lines,omitempty"` // behind the name
	// Tunnel draws the network as one that runs through others.
	Tunnel bool `json:"tunnel,omitempty"`
}

// Node is a machine.
type Node struct {
	Name  string   `json:"name"`
	Lines []string `json:"lines,omitempty"`
	Links []Link   `json:"links,omitempty"`
	Pods  []Pod    `json:"pods,omitempty"`
	// Bad draws the node as one that something is wrong with.
	Bad bool `json:"bad,omitempty"`
}

// Link is a node's connection to a wire. One to a wire that the diagram does not have is drawn without a line.
type Link struct {
	Wire  string   `json:"wire"`
	Name  string   `json:"name"` // the interface
	Lines []string `json:"lines,omitempty"`
}

// Pod is a box inside a node.
type Pod struct {
	Name  string   `json:"name"`
	Lines []string `json:"lines,omitempty"`
	Bad   bool     `json:"bad,omitempty"`
}
