// SPDX-License-Identifier: Apache-2.0

// Package cniserver answers the CNI calls that weft-cni hands over: it takes the request from the socket, refuses
// nonsense with the right CNI code, and gives the attachments of the call to attach.
//
// # Vocabulary
//
//   - Call: one request on one connection, with everything that has to be closed and told about it.
//   - Delegate: one network of the call. The configuration's list "delegates" names them; the first is attached as
//     CNI_IFNAME, the others as net1, net2 ….
//   - Queue: the DELs that weft-cni wrote to disk while nobody answered.
//
// # The picture
//
//	accept (worker) → peer is root? → frame → call ──→ verbs ──→ attach, once for each delegate
//	                                            │
//	queue directory ────────────────────────────┘          watchdog: ends calls that take too long
//
// A worker is a goroutine that waits in accept itself and does the whole call: no hand-over between goroutines and no
// poller stand between the kernel and the answer. There are always some workers waiting, and never more than
// maxWorkers. At most spareWorkers wait for a request; a connection whose request is not there then is parked with the
// runtime's poller until it comes, or the watchdog ends it.
package cniserver
