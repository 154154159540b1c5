// SPDX-License-Identifier: Apache-2.0

// Package reader asks rtnetlink what one namespace holds: links, addresses, routes, neighbors, forwarding entries,
// rules, qdiscs, VLANs of ports. It changes nothing and knows nothing of what is wanted.
//
// A node of a large cluster has thousands of routes, neighbors and forwarding entries on one device. To look for few of
// them the kernel is asked for each; to look for many it tells the device's whole table in one dump. Which of the two
// is the caller's choice: FewNeighs and FewFDBs ask, Neighs and FDBs dump.
package reader
