// SPDX-License-Identifier: Apache-2.0

// Package udp transports packets between nodes like flannel's backend of that name: each IP packet that the kernel
// sends to a TUN device is sent whole in one UDP datagram to the node of its destination, and written to that node's
// TUN device. Nothing is added, so it is compatible with flannel's proxy.
//
//	pod → kernel → TUN → encap → UDP socket ~~~ wire ~~~ UDP socket → decap → TUN → kernel → pod
//
// # Performance
//
// The kernel passes the data of a TCP connection as one large packet (TSO). encap cuts it to the MTU and passes the
// segments, with other packets to the same node, to the socket in one message, which the kernel cuts into datagrams
// (UDP_SEGMENT). In the other direction, datagrams of one sender arrive together (UDP_GRO), and decap merges
// consecutive packets of a connection into a large one before it writes them to the device. Packets are never delayed
// for this: only those that are already waiting are merged.
//
// Each direction has a goroutine that reads without blocking while there are packets and otherwise blocks in the
// kernel, outside of Go's poller: the scheduler would delay single packets. Nothing is allocated per packet.
//
// # Forwarding
//
// As in flannel's proxy the TTL is decremented at each end. If it expires, or if the destination is no peer's, an ICMP
// error is sent from the device's own address (flannel only sends the latter, and only in IPv4).
//
// A packet is refused unless its source belongs to the node that sent it. A firewall rule would see the source of the
// first datagram only: those that arrive together pass it as one.
package udp
