// SPDX-License-Identifier: Apache-2.0

// Package cniserver serves the CNI calls that weft-cni forwards: it reads the request from the socket, refuses an
// invalid one with the right CNI code, and passes the attachments of the call to attach.
//
// # Vocabulary
//
//   - Call: one request on one connection, with everything that has to be closed and reported for it.
//   - Delegate: one network of the call. The configuration's list "delegates" names them; the first is attached as
//     CNI_IFNAME, the others as net1, net2 ….
//   - Queue: the DELs that weft-cni wrote to disk while the agent did not answer.
//
// # The picture
//
//	accept (worker) → peer is root? → frame → call ──→ verbs ──→ attach, once for each delegate
//	                                            │
//	queue directory ────────────────────────────┘          watchdog: ends calls that take too long
//
// A worker is a goroutine that blocks in accept itself and does the whole call: there is no hand-over between
// goroutines and no poller between the kernel and the answer. Some workers are always waiting, and there are never
// more than maxWorkers. At most spareWorkers wait for a request; a connection whose request has not arrived then is
// parked with the runtime's poller until it does, or the watchdog ends it.
package cniserver
