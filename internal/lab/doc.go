// SPDX-License-Identifier: Apache-2.0

// Package lab is a whole cluster on one machine. A node is a network namespace with an agent process and a sandbox
// runtime process of this same program; nodes are joined by wires, which are bridges in a namespace of their own.
//
// # Where things are
//
// Everything a lab makes is below its state directory, so labs do not know each other and down needs nothing else:
//
//	DIR/lab.json            the marker: whose directory this is, and the layout
//	DIR/lock                held by the command at work
//	DIR/ns/wires, ns/NODE   the namespaces
//	DIR/store/*.yaml        the cluster's manifests
//	DIR/bin/                the CNI binary directory
//	DIR/nodes/NODE/         a node: net.d (CNI configuration), cache, agent (ledger), sandbox, logs, sockets, pid files
//
// # How a lab ends
//
// A lab does not rely on having been brought up completely, nor on its processes' good will. Down finds processes by
// the namespaces they are in and by the mark in their environment, kills them, takes away what is mounted below DIR and
// then DIR itself, the marker last. So whatever was killed when, the next down (or up) finds all of it.
package lab
