// SPDX-License-Identifier: Apache-2.0

// Package tc encodes rtnetlink's traffic control: queueing disciplines and the filter that redirects packets arriving
// on a link to another one. It builds requests and decodes answers; package kernel sends them, in its own batches.
//
// # Ownership
//
// A root qdisc of weft's has the handle 7766: ("wf"). The kernel's default qdisc has none and is replaced; any other
// root qdisc is foreign, and is neither replaced nor removed. An ingress qdisc always has the same handle, so it is
// shared: weft's filter in it has its own priority.
package tc
