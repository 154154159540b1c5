// SPDX-License-Identifier: Apache-2.0

// Package connectivity tests connectivity between endpoints with real packets. One process listens and sends inside the
// network namespaces of all endpoints, so that no program has to run in the pods.
//
// # Terms
//
//   - Endpoint: a pod or node, with its name, its namespace and the addresses by which others reach it.
//   - Pair: one protocol from one endpoint to another. There is a pair for each protocol of each address family that both
//     endpoints have. A pair is reachable if every address of that family replies.
//   - Expected: whether the pair should be reachable. Network policies decide; without any, all pairs should be.
//
// A TCP or UDP reply contains the name of its endpoint, so that a reply from the wrong pod counts as a failure.
package connectivity
