// SPDX-License-Identifier: Apache-2.0

// Package path measures what a pod's packets cost on their way to a pod of the same node and of another one, for
// flannel's design, weft's, and the bare wire as the limit.
//
// # Vocabulary
//
//   - Design: two nodes (network namespaces), the wire between them (a veth pair), what joins the nodes, and pods on
//     them. All designs are up at once and idle but for the one that is measured.
//   - Way: from one pod of a design to another: on the same node, or across.
//   - End: a process in a pod that makes or answers load, pinned to one processor: clients to the first, servers to the
//     second. It blocks in raw system calls and has nothing else to do, so Go's scheduler is not measured.
//
// In each round every way takes each test once, in an order that is new every round. Ratios are of the same round, and
// what is told of them is the median. The figures are of software paths, not of network cards.
package path
