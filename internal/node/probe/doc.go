// SPDX-License-Identifier: Apache-2.0

// Package probe tests the connectivity to the other nodes of a mesh by real packets, and finds the fault if a node is
// not reachable.
//
// # Vocabulary
//
//   - Underlay: the network between nodes. Overlay: the path of pods' packets; it ends at the peer's own tunnel address,
//     or at an address of the peer's podCIDR where there is no tunnel.
//   - Small: a packet that fits any link. Large: a packet of the planned MTU, sent with DF.
//
// # How faults are distinguished
//
// A small echo over the underlay, a small one over the overlay, a large one over the overlay, and datagrams whose
// checksums are offloaded to the device. Each is repeated until there is a response or a timeout:
//
//	underlay  small  no response                             the link, or the peer
//	overlay   small  none, though the underlay responds      the encapsulation: a closed port, a wrong table
//	overlay   large  none, though small ones arrive          the MTU: the largest size that passes is searched for
//	datagrams        only with checksums by the kernel       the device's checksum offload
//
// The peer's kernel responds, no process does. Where the peer has no address of its own in the overlay (host-gw), a
// packet with TTL 1 is sent into its podCIDR: ICMP "time exceeded" from the peer is the response.
package probe
