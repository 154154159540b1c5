// SPDX-License-Identifier: Apache-2.0

// Package policy measures the cost of network policies: connections and round trips of a pod whose policies allow many
// peers, and the time to program them, for weft and for rules as iptables users, Calico and kube-router write them.
//
// # Vocabulary
//
//   - Engine: programs policies into the kernel. "routed" is the baseline without a policy engine.
//   - Cell: the number of policies that select the server's pod, and the number of peers distributed over them; the
//     client is the last peer of the last policy.
//   - World: a node with two routed pods in their own namespaces, one for each engine and cell. All worlds exist at the
//     same time; only the measured one has traffic.
//
// In each round every world runs each test once, in an order that changes every round. Ratios are of the same round.
package policy
