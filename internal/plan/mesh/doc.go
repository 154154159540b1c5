// SPDX-License-Identifier: Apache-2.0

// Package mesh plans how the pods of other nodes are reached from this one: from the nodes of a cluster and what the
// kernel said about this node's links, it says which devices, neighbors and routes should exist, and what a process in
// user space must carry. It is pure, and its result prints itself.
//
// # Vocabulary
//
//   - Self: the node that is planned for. Peer: any other node.
//   - Underlay: the link that holds self's own address (InternalIP) of a family; packets to peers leave through it.
//   - Back end: how packets get from node to node; a row of the table Config.Backends, with functions that plan.
//     host-gw: plain routes, the peer's own address as gateway, so peers must be neighbors on the underlay.
//   - Published: what a node says of how it is reached, in flannel's words. Each peer is reached by the back end that
//     it publishes, and the node's part holds what every back end in use needs.
//   - Tunnel: what a process must keep because the kernel has no device for it. Keys are never in a plan, only their
//     files.
//   - Problem: a contradiction in the facts. What it is about is left out of the plan; everything else is planned. Of
//     two nodes that claim overlapping prefixes neither is routed to: every node of the cluster must decide alike, and
//     a packet is better lost than given to the wrong pod.
//
// # What belongs to the mesh
//
// Each peer is one fragment with the owner "mesh/peer/NAME"; what all need (forwarding) is "mesh/node". Every route has
// weft's protocol number and a metric of its own between MetricMin and MetricMax, derived from its prefix: routes of
// one device that share a metric make the kernel's search linear, and the range tells the mesh's routes from those of
// attachments when nobody remembers who made them.
package mesh
