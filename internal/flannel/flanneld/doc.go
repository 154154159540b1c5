// SPDX-License-Identifier: Apache-2.0

// Package flanneld is the daemon that stands in for flannel's: it gets the node's subnets from Kubernetes or etcd,
// keeps the ways to all other nodes' pods, keeps flannel's rules, and writes subnet.env for the CNI plugin.
//
//	manager (Kubernetes, etcd) → source → facts → reconcile (plan/mesh) → kernel
//	     ↑                                             │
//	     └── what the node publishes ←── each pass ────┴──→ subnet.env, rules
//
// It keeps no state but subnet.env and the key of WireGuard, so several can run on one file system. What it made stays
// when it ends, however it ends; whoever starts next, it or flannel's own, goes on from there.
package flanneld
