// SPDX-License-Identifier: Apache-2.0

// Package policy compiles network policies to nft tables: from policies, namespaces, pods, nodes and this node's interfaces it
// says which chains and sets the kernel should hold, and, after something changed, what of them changes. It is pure.
//
// # Vocabulary
//
//   - Endpoint: an interface of a pod. This node's endpoints are judged; those of other nodes are addresses.
//   - Place: where a table is: the node's namespace, for interfaces that are routed there, or a pod's own.
//   - Subject: a pod that a policy selects. What is not selected by any has no element in the table and passes.
//   - Identity: a namespace and a set of labels. Selectors are asked once for an identity, not once for a pod.
//   - Group: what the peers of a rule select, as a set of addresses; the same selectors anywhere are the same group. It
//     exists while a chain on this node uses it.
//   - Chain of a combination: all endpoints that the same policies select share one chain, which asks these policies.
//
// # The picture
//
//	forward ── egress ── iifname vmap @egress ─► pods/HASH/out ─► admin/… np/… np/… deny/…
//	        └─ ingress ─ oifname vmap @ingress ─► pods/HASH/in ─► …           │
//	                                                         ip saddr @pods4/HASH tcp dport 80 accept
//
// An accept ends only its own base chain, so that a connection needs both sides. There is no rule for a pod and none for a
// peer: a pod is an element of two maps and of the sets of the groups that it belongs to.
package policy
