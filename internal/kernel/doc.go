// SPDX-License-Identifier: Apache-2.0

// Package kernel makes network namespaces match fragments: it reads the objects that a fragment names, compares them,
// and writes the differences. It knows nothing of pods, plugins or plans.
//
// # The order of Apply
//
//	both   settings that are not about a link
//	host   read the links by name; create the missing ones, down, in place, with final name, MAC, MTU, peer and
//	       master (both ends of a pair in one request)
//	pod    read the links by name; compare the ends of pairs
//	both   links on top of parents, requested in the parent's namespace, and tap devices, one by one; existing links
//	       into their VRF, restoring the addresses that they lose by it
//	both   read the state from before this Apply
//	host   alias, port attributes, per-interface settings, addresses; links that are not an end of a pair come up
//	both   nft, as one transaction each; before it iptables and firewalld, if they are wanted
//	pod    settings, qdiscs, links up, addresses, neighbors, routes, rules         (one batch)
//	host   ends of pairs up, neighbors, routes, rules                      (one batch, last)
//	both   wait until the new links can pass packets
//
// So nothing can reach a pod before its rules exist, and a pod's routes exist before its first packet. Only objects
// that the fragment names are read: an Apply costs the same on a node with 10 and with 1,000 other attachments. Objects
// that this Apply created are not read at all.
//
// # Where each kind of object is
//
// One type in one file reads, compares, writes, removes and reports one kind of object, and each can be read
// separately: links.go (names and indexes), linksettings.go (settings of links), addrs.go, routes.go, neighs.go,
// fdbs.go, rules.go, sysctls.go, qdiscs.go, portvlans.go, checksums.go, joins.go, filters.go. A view has one of each
// for one namespace; Apply, Diff, Read and Remove only determine their order. Package reader queries the kernel, and
// package observe answers planners' queries; packages join and netfilter are about joins and packet filters.
//
// # Ownership
//
// A link of a wanted name is ours when it has the wanted kind and the wanted mark (its alias); without any mark, when
// it has the MAC that the plan chose. The two ends of a pair must refer to each other. A route is ours by its protocol
// number; another program's route with the wanted destination, metric and table is an error, and so is every other
// conflicting object. A foreign object that is exactly as wanted is accepted, and is never removed.
//
// # Moved links
//
// A link with an origin is not created but moved from there, in one change with its new name; while it is away its
// alias is its old name. Remove and Release move it back under that name, from wherever it is: still at its origin, in
// the pod, or moved by the kernel under another name because the pod's namespace was deleted. They do not restore what
// else it lost: Restore applies a pre-image to the objects that still exist, and creates no links.
//
// # Index and name
//
// Plans name links. Indexes of new links are chosen here, so that one batch can refer to both ends of a pair; the
// kernel refuses an index in use and another one is chosen.
//
// # Metrics
//
// A route without a metric has the kernel's default. A plan that adds hundreds of routes over one device should use a
// different metric for each: the kernel searches equal ones linearly. Routes to containers each have their own device.
//
// # Lifetime
//
// A Conn uses its namespace's descriptor as long as it is open. A pod's sockets cost few system calls and no thread
// stays in a namespace: only settings that no link message contains require entering it.
package kernel
