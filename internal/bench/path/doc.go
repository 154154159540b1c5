// SPDX-License-Identifier: Apache-2.0

// Package path measures pod-to-pod traffic on one node and across two, for flannel's dataplane, weft's, and the bare
// wire as the upper limit.
//
// # Vocabulary
//
//   - Design: two nodes (network namespaces), the wire between them (a veth pair), the mesh, and pods. All designs exist
//     at the same time; only the measured one has traffic.
//   - Way: from one pod of a design to another: on the same node, or across.
//   - Pair: a client and a server process in two pods, each pinned to a CPU: clients to the first one, servers to the
//     second. They block in raw system calls, so Go's scheduler is not measured.
//
// In each round every way runs each test once, in an order that changes every round. Ratios are of the same round, and
// the report has their medians. The measurements cover software paths, not NICs.
package path
