// SPDX-License-Identifier: Apache-2.0

// Package bench measures what a pod's network costs, for weft and for any peer, interleaved in one run on one machine.
//
// # Vocabulary
//
//   - Impl: one way of executing a chain: a vendor's binary directory, weft's standalone plugins, or weft's agent.
//   - World: an Impl's own network namespace that plays the node, its directories and, for the agent, its process. The
//     pods of one Impl never slow another's down.
//   - Cell: one combination of pods present and calls at a time; all Impls are measured in it, round by round, in an
//     order that changes every round.
//
// Times are what libcni's caller waits. CPU is user plus system time of every process that took part, the agent's
// included; the kernel's softirq work is not counted. Execs and syscalls are counted in a pass of their own under
// strace, never in a timed one. Pods' namespaces have no name in any file system (they are reached through the bench's
// own descriptors), so a killed benchmark leaves nothing behind.
package bench
