// SPDX-License-Identifier: Apache-2.0

// Package kernel moves network namespaces to what fragments say: it reads what a fragment names, compares, and writes the
// difference. It knows nothing of pods, plugins or plans.
//
// # How Apply walks
//
//	host   read the links by name       make links (down, in place, with final name, MAC, MTU, peer, master), settings,
//	                                    addresses; sysctls; nft as one transaction
//	pod    read, settings, links up, addresses, neighbours, routes, rules        (one batch)
//	host   links up, neighbours, routes, rules                                   (one batch, last)
//
// So nothing can reach a pod before its rules stand, and a pod's routes stand before its first packet. Only what the
// fragment names is read: an Apply costs the same beside 10 and beside 1,000 other attachments.
//
// # Index and name
//
// Plans know links by name. Indexes of new links are chosen here, so that one batch can make a link and already speak of
// it; the kernel refuses a taken one and another is chosen.
package kernel
