// SPDX-License-Identifier: Apache-2.0

// Package policy does what network policies say: it feeds plan/policy's index with what the store tells and with this
// node's interfaces, and writes what the index says has changed into the kernel, one transaction for each change.
//
// # Vocabulary
//
//   - Interface: one of a pod of this node (model.WorkloadEndpoint), from before it is made until it is down.
//   - Peers: the pods, nodes and interfaces of the whole cluster. They are followed once there is a policy, and not
//     before.
//   - Whole: writing everything that should be there, whatever there is: at the start, and when somebody meddled.
//   - Place: the namespace that a table stands in: the node's, or that of a pod whose interface has no end on the node
//     that all its packets pass.
//
// # The picture
//
//	store ──policies, namespaces, peers──→ index ──changes──→ kernel: the node's namespace, and pods' own
//	attach ──Admit, Release──────────────↗   │
//	                └──→ NodeEndpoints, one object a node, for the index of the others
//	conntrack ──entries of pods──→ index: allowed? ──→ those that are not are forgotten
//
// # Closed until known
//
// The table of an agent before stays in force until everything is known anew; then it is made right in one transaction.
// An ADD waits until policies are known, and the pod, if a policy could be about it; it fails with "try again"
// otherwise, and is never let through. What is written into the kernel is written before Admit returns, and before
// anything of the interface exists.
//
// # One lock, and turns
//
// Everything that an Enforcer knows is under one lock, which nobody holds while the kernel works. Who writes takes a
// turn: there is one for the node's tables and one for those in pods, so that no two writes of a kind meet, and what
// stands when Admit returns is what it asked for. The lock is taken for what is to be written and for what became of
// it; nobody who has it waits for a turn, and nobody who has the turn of the node's tables waits for the other one.
//
// The node's tables come before a table in a pod goes (place.needless): what is judged there from now on is judged all
// the time. An ADD waits for the node's tables if its packets are judged by them, and for a second otherwise: then its
// pod's table is written whole, ahead of what the node's writer still has in hand. A DEL waits for a second, too.
// Questions and metrics wait for nobody: counters are read over a connection of their own.
//
// What connections' sockets lock of their own is taken after this lock. While conntrack tells a function what is
// tracked, its socket is held: such a function must not ask for this lock.
package policy
