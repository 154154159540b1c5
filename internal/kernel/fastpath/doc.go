// SPDX-License-Identifier: Apache-2.0

// Package fastpath redirects the packets of established flows between a node's links, past netfilter and the routing, which
// have decided on the first packets of each flow: by eBPF programs at tcx (Linux 6.6), of which the rest is about, or by a
// Flowtable of nftables. A flow is learned when a packet
// arrives at one link of the path and leaves by another one with the same addresses and ports: what is dropped or
// translated on the way is never learned.
//
// # What takes the slow path
//
// All protocols but TCP and UDP; SYN, FIN and RST, and all packets of a connection after these; fragments, IP options and
// IPv6 extension headers; a lifetime of 1 or less; packets that exceed the MTU of the route, so that the kernel signals
// it; VLAN tags; other MAC addresses, another DSCP or mark than the learned packet had; flows whose DSCP or mark the stack
// changes; flows from a pod's or guest's link whose source is not the pod's own address; and one packet per interval, by which
// conntrack sees that the flow lives, and with which it is learned again.
//
// # Changes
//
// Flush makes all flows be learned again. It is called after a change of rules, conntrack entries or routes: a packet
// that arrived before does not teach.
//
// # Lifetime
//
// The programs are attached by links that belong to this process: they vanish with it, however it ends, and with each
// network interface. Nothing is pinned.
//
// The programs are compiled from fastpath.c; TestProgram compares both where clang is installed.
package fastpath
