// SPDX-License-Identifier: Apache-2.0

// Package vm measures what the ways between a virtual machine and its pod's network cost.
//
// # Vocabulary
//
//   - Design: how the machine's card meets the pod's link: a binding, or one of its forms. The plain pod, which has no
//     machine, is the limit.
//   - World: one design while it is up: a node with two routed pods. The machine is in the first one, made by the
//     planner and the driver; the second one is its peer.
//   - Card: a process that has the machine's tap, as a hypervisor has it, and does one of two things with it: it sends
//     and takes frames itself (no guest, so nothing but the way is measured), or carries them to and from a guest.
//   - Guest: a namespace with the addresses and routes that the guest of that design is told, behind a tap of its own.
//
// All worlds are up at once and idle but for the one that is measured. In each round every world takes each test once,
// in an order that is new every round. Ratios are of the same round, and what is told of them is the median.
//
// A card that sends frames is on one processor, and all that the kernel does with them is done on that one before the
// card goes on: the time that a frame takes is the processor's time. The figures are of software paths, not of network
// cards, and of no hypervisor.
package vm
