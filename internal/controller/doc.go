// SPDX-License-Identifier: Apache-2.0

// Package controller does what is to be done once in a cluster about its pools of addresses. One at a time does it, the
// one that holds a Lease; addresses are given without it. In Kubernetes that is a Deployment with an account of its
// own, whose rights agents do not have; with a directory or an etcd it is one of the agents.
//
//   - What agents ask for about pools is granted (requests), the configuration's pools are made, and blocks of nodes
//     that are gone are marked (orphans): where agents may not do that themselves.
//   - Calico's IPPools become AddressPools of the same names (mirror): everybody else knows weft's kinds only.
//   - Reservations, weft's and Calico's, go into the pools that have their addresses (excluded).
//   - What holds of a pool is written into its status (conditions).
//   - A pool of the cluster's network that is deleted stays until its last block is back (finalizer).
//   - Claims of virtual machines that are gone are deleted (machines).
//   - Pools, blocks, reservations, nodes and pods are compared again and again (check), for metrics and a condition.
//
// Each step is a comparison of what is with what should be, and one compare-and-swap where they differ: two controllers
// at once, or one that is killed anywhere, do no harm.
//
// What people do with pools by `weft ipam` is here, too: reserve, release, migrate, and the import of what others have
// given.
package controller
