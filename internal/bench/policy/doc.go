// SPDX-License-Identifier: Apache-2.0

// Package policy measures what network policies cost: the connections and answers of a pod whose policies name many
// peers, and the time until the kernel knows them, for weft beside rules as iptables users, Calico and kube-router
// write them.
//
// # Vocabulary
//
//   - Engine: who turns policies into what the kernel keeps. "routed" is the pods' way without any policy engine: the
//     limit.
//   - Cell: so many policies select the server's pod, and so many peers are dealt out among them; the client is the
//     last peer of the last policy.
//   - World: a node with two routed pods, in namespaces of their own; one for each engine and cell. All are up at once
//     and idle but for the one that is measured.
//
// In each round every world takes each test once, in an order that is new every round. Ratios are of the same round.
package policy
