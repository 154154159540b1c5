// SPDX-License-Identifier: Apache-2.0

// Package mesh plans how the pods of other nodes are reached from this one: from the nodes of a cluster and the
// kernel's answers about this node's links, it computes which devices, neighbors and routes should exist, and which
// tunnels a process in user space must run. It is pure, and its result can be printed.
//
// # Vocabulary
//
//   - Self: the node of the plan. Peer: any other node.
//   - Underlay: the link with self's own address (InternalIP) of a family; packets to peers leave through it.
//   - Backend: how packets get from node to node; a row of the table Config.Backends, with functions that plan.
//     host-gw: plain routes with the peer's address as gateway, so peers must be neighbors on the underlay.
//   - Published: what a node publishes about how it is reached, in flannel's annotations. Each peer is reached by the
//     backend that it publishes, and the node's part has what every backend in use needs.
//   - Tunnel: an encapsulation that a process runs because the kernel has no device for it. Keys are never in a plan,
//     only the names of their files.
//   - Problem: a contradiction in the facts. The affected part is omitted from the plan; everything else is planned. Of
//     two nodes that claim overlapping prefixes neither is routed to: every node of the cluster must decide in the same
//     way, and a lost packet is better than one delivered to the wrong pod.
//
// # Objects of the mesh
//
// Each peer is one fragment with the owner "mesh/peer/NAME"; what all need (forwarding) is "mesh/node". Every route has
// weft's protocol number and a metric of its own between MetricMin and MetricMax, derived from its prefix: routes of
// one device that share a metric make the kernel's search linear, and the range distinguishes the mesh's routes from
// those of attachments without a record of them.
package mesh
