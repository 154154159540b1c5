// SPDX-License-Identifier: Apache-2.0

// Package sandbox is a minimal kubelet and container runtime, the caller's side of CNI. It runs v1.Pod manifests as
// processes of this host in namespaces of their own.
//
//	manifests ─┐                       ┌─▶ worker (one per pod) ─▶ engine: sandboxes, containers ─▶ network: libcni
//	socket ────┼─▶ Server (sync loop) ─┼─▶ worker …                          │
//	           │        ▲              └─▶ worker …                          │ lists
//	           │        └────────────── events ◀── pleg ◀────────────────────┘
//	           └─ podStore: desired pods, on disk
//
// The kubelet's part is in this package: desired pods, pod workers, restarts with back-off, and garbage collection. The
// runtime's part is in engine, container, network, confdir and checkpoint.
package sandbox
