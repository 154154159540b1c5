// SPDX-License-Identifier: Apache-2.0

// Package bench measures the cost of a pod's network for weft and for peer plugins, interleaved in one run on one host.
//
// # Vocabulary
//
//   - Impl: an implementation of the chain: a vendor's plugin directory, weft's standalone plugins, or weft's agent.
//   - World: an Impl's own node: a network namespace, its directories and, for the agent, its process. The pods of one
//     Impl never slow another one down.
//   - Cell: one combination of pods present and concurrent calls; all Impls are measured in it, round by round, in an
//     order that changes every round.
//
// Times are latencies as libcni's caller sees them. CPU is user plus system time of all processes, the agent's
// included; softirq time is not counted. Execs and syscalls are counted in a separate pass under strace, never in a
// timed one. Pod namespaces are anonymous (CNI_NETNS points to descriptors of the benchmark), so a killed benchmark
// leaks nothing.
package bench
