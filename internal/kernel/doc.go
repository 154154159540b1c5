// SPDX-License-Identifier: Apache-2.0

// Package kernel moves network namespaces to what fragments say: it reads what a fragment names, compares, and writes
// the difference. It knows nothing of pods, plugins or plans.
//
// # How Apply walks
//
//	both   settings that are about no link
//	host   read the links by name; make those that are missing, down, in place, with final name, MAC, MTU, peer and
//	       master (a pair's two ends are one request)
//	pod    read the links by name; compare the ends of pairs
//	both   links upon parents, asked for in the parent's namespace, and tap devices, one by one; links that were there
//	       into their VRF, with the addresses that they lose by it
//	both   read what was there before this Apply
//	host   alias, port attributes, per-interface settings, addresses; links that are no pair's end come up
//	both   nft, as one transaction each; before it iptables and firewalld, where they are asked for
//	pod    settings, qdiscs, links up, addresses, neighbors, routes, rules         (one batch)
//	host   ends of pairs up, neighbors, routes, rules                      (one batch, last)
//	both   wait until what came up can pass packets
//
// So nothing can reach a pod before its rules stand, and a pod's routes stand before its first packet. Only what the
// fragment names is read: an Apply costs the same beside 10 and beside 1,000 other attachments. What this Apply made is
// not read at all.
//
// # Where to find a kind of thing
//
// How one kind is read, compared, written, removed and told is one type in one file, and each can be read alone:
// links.go (names and indexes), linksettings.go (what is set on links), addrs.go, routes.go, neighs.go, fdbs.go,
// rules.go, sysctls.go, qdiscs.go, portvlans.go, checksums.go, joins.go, filters.go. A view has one of each for one
// namespace, and Apply, Diff, Read and Remove only say in which order they come. What asks the kernel is package
// reader, what answers a planner is package observe; packages join and netfilter hold what their names say.
//
// # What is ours
//
// A link of a wanted name is ours when its kind is the wanted one and it bears the wanted mark (its alias); without any
// mark, when it has the MAC that the plan chose. The two ends of a pair must know each other. A route is ours by its
// protocol number; one of another's that has the wanted destination, metric and table is an error, and so is everything
// else that stands in the way. A foreign thing that is exactly what is wanted is good enough, and is never removed.
//
// # Moved and given back
//
// A link with an origin is not made but comes from there, in one change with its new name; its alias is its old name
// while it is away. Remove and Release send it back under that name, wherever they find it: still at its place, in the
// pod, or put back by the kernel under another name because the pod's namespace died. What else it lost is not theirs
// to know: Restore applies a pre-image to what is still there, and makes nothing.
//
// # Index and name
//
// Plans know links by name. Indexes of new links are chosen here, so that both ends of a pair can be spoken of at once;
// the kernel refuses a taken one and another is chosen.
//
// # Metrics
//
// A route without a metric has the kernel's default. A plan that puts hundreds of routes on one device gives each its
// own metric: among equals the kernel's search is linear. Routes to containers each have a device of their own.
//
// # Open as long as needed
//
// A Conn uses its namespace's descriptor for as long as it lives. A pod's sockets cost few system calls and no thread
// stays in a namespace: only settings that no link message carries enter it.
package kernel
