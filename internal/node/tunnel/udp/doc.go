// SPDX-License-Identifier: Apache-2.0

// Package udp carries packets between nodes as flannel's back end of that name does: each IP packet that the kernel
// gives to a TUN device travels whole in one UDP datagram to the node that has its destination, and is given to that
// node's TUN device. Nothing is added, so a node that runs flannel's proxy understands it.
//
//	pod → kernel → TUN → outward → UDP socket ~~~ wire ~~~ UDP socket → inward → TUN → kernel → pod
//
// # What makes it fast
//
// The kernel hands over what a TCP connection sends as one large packet (TSO), outward cuts it into what fits into the
// wire and gives the pieces, and whatever else goes to the same node, to the socket in one message that the kernel cuts
// into datagrams (UDP_SEGMENT). The other way, datagrams of one sender arrive together (UDP_GRO), and inward joins the
// neighboring packets of one connection into a large one again before it writes to the device. Packets are never held
// back for company: what waits is sent.
//
// Both directions have a goroutine of their own that reads without waiting while there is something to read and else
// waits in the kernel, outside of Go's poller: a packet that comes alone must not pay for the scheduler. Nothing is
// allocated for a packet.
//
// # What happens to a packet
//
// As in flannel's proxy its TTL goes down by one at each end. One whose TTL ends, and one whose destination is no
// peer's, is answered by ICMP from the device's own address (flannel answers only the latter, and only in IPv4).
//
// A packet that arrives is refused unless its source belongs to the node that sent it. A rule of the kernel sees that
// of the first datagram only: those that arrive together pass it as one.
package udp
