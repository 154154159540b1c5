// SPDX-License-Identifier: Apache-2.0

// Package lab runs a whole cluster on one host. A node is a network namespace with an agent process and a sandbox runtime
// process; nodes are connected by wires, which are bridges in a namespace of their own.
//
// # Files
//
// All files of a lab are in its state directory, so that labs are independent and down needs nothing else:
//
//	DIR/lab.json            the marker: the lab's name, phase and layout
//	DIR/lock                locked by the current command
//	DIR/ns/wires, ns/NODE   the namespaces
//	DIR/store/*.yaml        the cluster's manifests
//	DIR/bin/                the CNI binary directory
//	DIR/nodes/NODE/         a node: net.d (CNI configuration), cache, agent (ledger), sandbox, logs, sockets, pid files
//
// # Cleanup
//
// Down works for a lab in any state. It finds processes by their namespaces and by an environment variable, kills them,
// unmounts everything in DIR and removes DIR, the marker last. So the next down (or up) removes everything, whatever
// process was killed at whatever time.
package lab
