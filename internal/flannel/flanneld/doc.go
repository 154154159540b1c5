// SPDX-License-Identifier: Apache-2.0

// Package flanneld is the daemon that replaces flanneld: it gets the node's subnets from Kubernetes or etcd, maintains
// the routes to all other nodes' pods and flannel's rules, and writes subnet.env for the CNI plugin.
//
//	manager (Kubernetes, etcd) → source → facts → reconcile (plan/mesh) → kernel
//	     ↑                                             │
//	     └── what the node publishes ←── each pass ────┴──→ subnet.env, rules
//
// It keeps no state but subnet.env and the key of WireGuard, so several can run on one file system. The network stays
// when it ends, in any way; the next daemon, this one or flannel's, continues from there.
package flanneld
