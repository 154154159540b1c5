// SPDX-License-Identifier: Apache-2.0

// Package probe asks the other nodes of a mesh by real packets, and tells where the fault is when one cannot be
// reached.
//
// # Vocabulary
//
//   - Underlay: the wire between nodes. Overlay: what pods' packets take; it ends at an address of the peer's own in a
//     tunnel, or somewhere in the peer's prefix where there is none.
//   - Small: a packet that fits anywhere. Large: one of the size that the plan promises, which nobody may cut (DF).
//
// # How faults are told apart
//
// A small echo over the underlay, a small one over the overlay, a large one over the overlay, and datagrams whose
// checksums are left to the device, each asked until it is answered or patience ends:
//
//	underlay  small  no                               the wire, or the peer, is at fault
//	overlay   small  no   though the underlay answers the encapsulation is: a port is closed, a table is wrong
//	overlay   large  no   though small ones arrive    the MTU is: how much passes is then searched for
//	datagrams        only with the kernel's checksums the device's checksums are
//
// No process answers at the peer, its kernel does. Where the peer has no address of its own in the overlay (host-gw), a
// packet with the TTL 1 is sent into its prefix: that it ended there is the answer.
package probe
