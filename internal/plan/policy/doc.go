// SPDX-License-Identifier: Apache-2.0

// Package policy compiles network policies to nft tables: from policies, namespaces, pods, nodes and this node's
// interfaces it says which chains and sets the kernel should hold, and, after something changed, what of them changes.
// It is pure.
//
// # Vocabulary
//
//   - Endpoint: an interface of a pod. This node's endpoints are judged; those of other nodes are addresses.
//   - Place: where a table is: the node's namespace, for interfaces that are routed there, or a pod's own.
//   - Subject: a pod that a policy selects. What is not selected by any has no element in the table and passes.
//   - Identity: a namespace and a set of labels. Selectors are asked once for an identity, not once for a pod.
//   - Group: what the peers of a rule select, as a set of addresses; the same selectors anywhere are the same group. It
//     exists while a chain on this node uses it.
//   - Combination: the policies that select an endpoint in one direction. All endpoints with the same one share a
//     chain, which asks these policies: each in a chain of its own, or, where they are many, all of them together (a
//     union).
//
// # The parts
//
// Each knows those above it, and none below.
//
//	cluster    what was told: namespaces with their pods by identity, nodes, policies, who holds an address
//	groups     who is selected: members of the groups in use, which of their elements came and went
//	compiler   which policies are asked about a subject, and what chains and rules they are
//	tables     what the tables of all places hold, and what of it changed; they use groups
//	endpoints  this node's: which chains of which table each goes by; which are to be looked at again
//	explainer  why: walks the chains of tables as the kernel does
//
// An Index is the front of them: it says to each what a fact changes for it. Only one thing is said upwards: the
// cluster has one follower, the groups, since what a pod brings must be counted while it changes.
//
// # The picture
//
//	forward ── egress ── iifname vmap @egress ─► pods/HASH/out ─► admin/… np/… np/… deny/…
//	        └─ ingress ─ oifname vmap @ingress ─► pods/HASH/in ─► …           │
//	                                                         ip saddr @pods4/HASH tcp dport 80 accept
//
// The picture of a table in a pod is the same, at the hooks of the pod's own end.
//
// An accept ends only its own base chain, so that a connection needs both sides. There is no rule for a pod and none
// for a peer: a pod is an element of two maps and of the sets of the groups that it belongs to.
package policy
