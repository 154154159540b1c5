// SPDX-License-Identifier: Apache-2.0

// Package controller reconciles a cluster's pools of addresses. One instance at a time is the leader, which holds a
// Lease; addresses are allocated without it. In Kubernetes it is a Deployment with its own service account, whose
// rights agents do not have; with a directory or an etcd it runs in one of the agents.
//
//   - Requests of agents about pools are granted (requests), the configuration's pools are created, and blocks of nodes
//     that are gone are marked (orphans): where agents may not do that themselves.
//   - Calico's IPPools are mirrored as AddressPools of the same names (mirror): other components use weft's kinds only.
//   - Reservations, weft's and Calico's, go into the pools that have their addresses (excluded).
//   - Conditions of a pool are written into its status (condition).
//   - A deleted pool of the cluster's network is kept until its last block is released (finalizer).
//   - Services of type LoadBalancer get addresses of the pools for Services (services).
//   - Claims of deleted virtual machines are deleted (vmclaims).
//   - Pools, blocks, reservations, nodes and pods are audited periodically (check), for metrics and a condition.
//
// Each step compares the actual with the desired state and writes one compare-and-swap where they differ: two
// controllers at once, or one that is killed anywhere, do no harm.
//
// The commands of `weft ipam` are here, too: reserve, release, migrate, and the import of addresses that other IPAM
// plugins have allocated.
package controller
