// SPDX-License-Identifier: Apache-2.0

// Package policy compiles network policies to nft tables: from policies, namespaces, pods, nodes and this node's
// interfaces it computes which chains and sets the kernel should have, and, after a change, which of them change. It is
// pure.
//
// # Vocabulary
//
//   - Endpoint: an interface of a pod. Policy is enforced on this node's endpoints; those of other nodes are just
//     addresses.
//   - Place: the network namespace of a table: the node's, for interfaces that are routed there, or a pod's own.
//   - Subject: a pod that a policy selects. A pod that no policy selects has no element in the table: its traffic is
//     allowed.
//   - Identity: a namespace and a set of labels. Selectors are evaluated once for each identity, not for each pod.
//   - Group: the addresses that the peers of a rule select, as a set; equal selectors share a group. It exists while a
//     chain on this node uses it.
//   - Combination: the policies that select an endpoint in one direction. All endpoints with the same one share a
//     chain, which evaluates these policies: each in a chain of its own, or, if they are many, all of them merged (a
//     union). Ordered policies are in the chain of their tier, or, if they are many, in chains of some of them each.
//
// # The parts
//
// Each part uses those above it only.
//
//	cluster    the facts: policies, nodes, tiers, network sets, and the podIndex
//	podIndex   of the facts: namespaces with their pods, by name, by identity and by address
//	groups     the members of the groups in use, and which of their elements changed
//	compiler   which policies select a subject, and their chains and rules
//	tables     the content of the tables of all places, and its changes; they use groups
//	endpoints  this node's: the table and the chains of each; which of them are dirty
//	explainer  why a connection is allowed or denied: walks the chains of tables as the kernel does
//
// An Index is their front: it passes each change of the facts on to the parts. Only one call goes upwards: cluster and
// podIndex have one observer, the groups, because a pod's addresses must be counted while they change.
//
// # The picture
//
//	forward ── egress ── iifname vmap @egress ─► pods/HASH/out ─► admin/… np/… np/… deny/…
//	        └─ ingress ─ oifname vmap @ingress ─► pods/HASH/in ─► …           │
//	                                                         tcp dport 80 ip saddr @pods4/HASH accept
//
// A table in a pod looks the same, at the hooks of the pod's own interface.
//
// An accept ends only its own base chain, so that a connection needs the permission of both sides. There is no rule for
// each pod or peer: a pod is an element of two maps and of the sets of its groups.
package policy
