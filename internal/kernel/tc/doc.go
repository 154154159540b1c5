// SPDX-License-Identifier: Apache-2.0

// Package tc speaks rtnetlink's traffic control: queueing disciplines and the filter that sends what arrives on a link
// through another one. It makes requests and reads answers; package kernel sends them, in the batches of its own.
//
// # What is ours
//
// A root qdisc of weft's has the handle 7766: ("wf"). The kernel's own choice for a link has none and is replaced; any
// other root qdisc is somebody's, and is neither replaced nor removed. A qdisc for arriving packets has the same handle
// whoever made it, so it is shared: weft's filter in it has a priority of its own.
package tc
