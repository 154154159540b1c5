// SPDX-License-Identifier: Apache-2.0

// Package sandbox is the caller's side of CNI: it plays a kubelet and its container runtime, and runs v1.Pod manifests
// as processes of this machine in namespaces of their own.
//
//	manifests ─┐                       ┌─▶ worker (one per pod) ─▶ engine: sandboxes, containers ─▶ network: libcni
//	socket ────┼─▶ Server (sync loop) ─┼─▶ worker …                          │
//	           │        ▲              └─▶ worker …                          │ lists
//	           │        └────────────── events ◀── pleg ◀────────────────────┘
//	           └─ desired: what shall run, on disk
//
// The kubelet's half is here: what shall run, the workers, restarts and back-off, clean-up. The runtime's half is in
// engine, container, network, confdir and checkpoint.
package sandbox
