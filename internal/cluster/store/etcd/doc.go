// SPDX-License-Identifier: Apache-2.0

// Package etcd is flannel's place in an etcd (v3): the network's configuration, and one key for each node's subnet,
// which a lease of 24 hours holds.
//
//	<prefix>/config                            net-conf.json
//	<prefix>/subnets/10.5.34.0-24              what the node with that subnet publishes
//	<prefix>/subnets/10.5.34.0-24&fc00::-64    the same with a second family
//
// That a key exists is the claim to the subnet: a transaction decides between two nodes, and where their keys differ
// but overlap, the older key.
//
// # When etcd is away
//
// What is known stays known: leases do not end while etcd is away, so neither do the nodes' claims. One that comes back
// without the network's configuration is not believed, because it has lost the rest too. A lease that ended
// nevertheless (a machine that slept for a day) is claimed again, if nobody else has the subnet by then.
//
// # Objects
//
// Beside that, Shelf keeps the objects of a cluster in an etcd, so that hosts without Kubernetes can share pools of
// addresses.
package etcd
