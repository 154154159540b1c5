// SPDX-License-Identifier: Apache-2.0

package state

import "net/netip"

// Connection is a connection in the kernel's connection tracking (conntrack).
type Connection struct {
	// Proto is the number of the transport protocol.
	Proto uint8 `json:"proto"`
	// Src and Dst are the original direction's source and destination; the ports of a protocol without ports are 0.
	Src netip.AddrPort `json:"from"`
	Dst netip.AddrPort `json:"to"`
	// ReplySrc and ReplyDst are the reply direction's source and destination: Dst and Src, or what those were
	// translated to by NAT.
	ReplySrc netip.AddrPort `json:"answers"`
	ReplyDst netip.AddrPort `json:"back"`
}

// ConntrackPeer is an address of conntrack entries. It matches connections that an address originates (Src), responds
// to (ReplySrc), or both.
type ConntrackPeer struct {
	Addr                 netip.Addr
	Originates, Responds bool
}
