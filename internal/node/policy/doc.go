// SPDX-License-Identifier: Apache-2.0

// Package policy enforces network policies on this node: it feeds plan/policy's index with the datastore's objects and
// this node's interfaces, and writes the index's changes to the kernel, one transaction for each change.
//
// # Vocabulary
//
//   - Interface: one of a pod of this node (model.WorkloadEndpoint), from before it is created until it is down.
//   - Peers: the pods, nodes and interfaces of the whole cluster. They are watched only while there is a policy.
//   - Whole: a rewrite of the complete tables, at the start and after an external change.
//   - EnforcementPoint, place: the namespace of a table: the node's, or that of a pod whose interface has no host end
//     that all its packets pass.
//
// # Data flow
//
//	datastore ──policies, namespaces, peers──→ index ──changes──→ kernel: the node's namespace, and pods' own
//	attach ──Admit, Release────────────────↗   │
//	                └──→ NodeEndpoints, one object a node, for the index of the others
//	conntrack ──entries of pods──→ index: allowed? ──→ denied ones are deleted
//
// # Fail closed
//
// The table of the previous agent stays in force until all policy inputs are synced; then it is replaced in one
// transaction. An ADD waits until policies are synced, and for the pod if a policy could select it; otherwise it fails
// with "try again". The kernel is written before Admit returns, and before the interface exists.
//
// # One lock, and kernel locks
//
// All state of an Enforcer is guarded by one lock, which is never locked during a kernel request. A writer has
// a kernelLock instead: there is one for the node's tables and one for those in pods, so that writes do not overlap,
// and the tables are complete when Admit returns. The lock is taken to compute a write and to record its result. Code
// with the lock never waits for a kernelLock, and code with that of the node's tables never waits for the other one.
//
// The node's tables are written before a pod's table is deleted (place.needless), so that the packets that they filter
// from then on are always filtered. An ADD waits for the node's tables if they filter its packets, and for a second
// otherwise: then its pod's table is written completely, ahead of the running write of the node's tables. A DEL waits
// for a second, too. Queries and metrics do not wait: counters are read over a connection of their own.
//
// The lock of a conntrack socket is taken after this lock. While conntrack calls a function for each entry, its socket
// is locked: such a function must not take this lock.
package policy
