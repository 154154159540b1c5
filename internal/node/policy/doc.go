// SPDX-License-Identifier: Apache-2.0

// Package policy does what network policies say: it feeds plan/policy's index with what the store tells and with this node's
// interfaces, and writes what the index says has changed into the kernel, one transaction for each change.
//
// # Vocabulary
//
//   - Interface: one of a pod of this node (attach.Guarded), from before it is made until it is down.
//   - Peers: the pods, nodes and interfaces of the whole cluster. They are followed once there is a policy, and not before.
//   - Whole: writing everything that should be there, whatever there is: at the start, and when somebody meddled.
//   - Place: the namespace that a table stands in: the node's, or that of a pod whose interface has no end on the node that all
//     its packets pass.
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
// The table of an agent before stays in force until everything is known anew; then it is made right in one transaction. An
// ADD waits until policies are known, and the pod, if a policy could be about it; it fails with "try again" otherwise, and is
// never let through. What is written into the kernel is written before Admit returns, and before anything of the interface
// exists.
//
// # One lock
//
// Everything that an Enforcer knows is under one lock, and rules are written with it held: no two writes meet, and what stands when
// Admit returns is what it asked for. The price: whoever asks anything waits for the write that is under way, be it another ADD of
// a pod that is judged in its own namespace, or Stats, Known, Show and Why. A look at everything takes writeTime at most. Denied
// waits, too: counters are read without the lock, but by the connection that writes, which does one thing at a time.
//
// What connections' sockets lock of their own is taken after this lock. While conntrack tells a function what is tracked, its socket
// is held: such a function must not ask for this lock.
package policy
