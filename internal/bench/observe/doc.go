// SPDX-License-Identifier: Apache-2.0

// Package observe measures what the observation of flows costs: the rate of connections, the agent's CPU time and memory,
// and the time from a packet to its line of weft observe.
//
// # Vocabulary
//
//   - Node: a network namespace with two pods that weft's agent has attached, and a policy that allows their connections.
//     All levels are measured on the same one: its agent is replaced by one of the next level.
//   - Level: none (no agent), off, denied or flows.
//   - Load: a process in a pod that sends datagrams to the other pod, each from another port, so that each is a flow.
//
// In each round every level is measured once, in an order that changes every round. Ratios are of the same round; the
// report has their medians with an interval.
package observe
