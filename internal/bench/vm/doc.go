// SPDX-License-Identifier: Apache-2.0

// Package vm measures the cost of the bindings between a VM and its pod's network.
//
// # Vocabulary
//
//   - Design: a binding, or a variant of one. The plain pod without a VM is the upper limit.
//   - World: a running design: a node with two routed pods. The VM is in the first one, set up by the planner and the
//     driver; the second one is its peer.
//   - NIC: a process that has the VM's tap open, as a hypervisor has. It either sends and receives frames itself (without
//     a guest, so only the binding is measured), or forwards them to and from a guest.
//   - Guest: a namespace with the addresses and routes that the design's guest would learn by DHCP, behind its own tap.
//
// All worlds exist at the same time; only the measured one has traffic. In each round every world runs each test once,
// in an order that changes every round. Ratios are of the same round, and the report has their medians.
//
// A NIC process that sends frames is pinned to a CPU, and the kernel processes each frame on that CPU before the write
// returns: the time per frame is CPU time. The measurements cover software paths, neither physical NICs nor
// hypervisors.
package vm
