// SPDX-License-Identifier: Apache-2.0

// Package etcd is flannel's subnet registry in an etcd (v3): the network's configuration, and one key for each node's
// subnet, with a lease of 24 hours.
//
//	<prefix>/config                            net-conf.json
//	<prefix>/subnets/10.5.34.0-24              what the subnet's node publishes
//	<prefix>/subnets/10.5.34.0-24&fc00::-64    the same with a second family
//
// The existence of a key is the claim to the subnet: a transaction decides between two nodes, and if their keys differ
// but overlap, the older key.
//
// # When etcd is unavailable
//
// The known state stays in force: leases do not expire while etcd is down, so neither do the nodes' claims. An etcd
// without the network's configuration is not trusted, because it has lost the leases too. An expired lease (of a host
// that was suspended for a day) is claimed again, if no other node has the subnet.
//
// # Objects
//
// ObjectStore stores the objects of a cluster in an etcd, so that hosts without Kubernetes can share pools of
// addresses.
package etcd
