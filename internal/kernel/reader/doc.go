// SPDX-License-Identifier: Apache-2.0

// Package reader reads a namespace's objects by rtnetlink: links, addresses, routes, neighbors, forwarding entries,
// rules, qdiscs, VLANs of ports. It changes nothing and knows nothing of what is wanted.
//
// A node of a large cluster has thousands of routes, neighbors and forwarding entries on one device. A few of them are
// read one by one; for many, the device's whole table is dumped. The caller chooses: FewNeighs and FewFDBs read single
// entries, Neighs and FDBs dump.
package reader
