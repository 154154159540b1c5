// SPDX-License-Identifier: Apache-2.0

// Package graph draws a cluster: wires as bars, nodes as boxes below them, pods as boxes in the nodes. It writes a diagram
// as dot for Graphviz, as SVG with a layout of its own, as text and as JSON. The output is deterministic.
//
//	wire ─┬──────────────────┬────────
//	wire ─┼──┬───────────────┼──┬─────
//	    ┌─┴──┴─────┐       ┌─┴──┴─────┐
//	    │ node     │       │ node     │
//	    │ [pod]    │       │ [pod]    │
//	    └──────────┘       └──────────┘
package graph

// Diagram is a cluster to draw.
type Diagram struct {
	Title string   `json:"title"`
	Lines []string `json:"lines,omitempty"` // below the title
	Wires []Wire   `json:"wires"`           // from top to bottom
	Nodes []Node   `json:"nodes"`           // from left to right
}

// Wire is a network that nodes are connected to.
type Wire struct {
	Name  string   `json:"name"`
	Lines []string `json:"lines,omitempty"` // after the name
	// Tunnel draws the network as an overlay, with dashes.
	Tunnel bool `json:"tunnel,omitempty"`
}

// Node is a node of the cluster.
type Node struct {
	Name  string   `json:"name"`
	Lines []string `json:"lines,omitempty"`
	Links []Link   `json:"links,omitempty"`
	Pods  []Pod    `json:"pods,omitempty"`
	// Bad marks a node that has a problem.
	Bad bool `json:"bad,omitempty"`
}

// Link is a node's connection to a wire. If the diagram does not have the wire, it is drawn without a line.
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
