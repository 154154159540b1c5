// SPDX-License-Identifier: Apache-2.0

package state

import "net/netip"

// ConntrackEntry is a connection with everything that another kernel needs to continue tracking it.
type ConntrackEntry struct {
	Connection
	// Timeout is the remaining lifetime without a packet, in seconds.
	Timeout uint32 `json:"timeout,omitempty"`
	Mark    uint32 `json:"mark,omitempty"`
	// SeenReply means that packets went both ways, Assured that the kernel keeps the entry when the table is full.
	SeenReply bool `json:"answered,omitempty"`
	Assured   bool `json:"assured,omitempty"`
	// TCP is nil for other protocols.
	TCP *ConntrackTCP `json:"tcp,omitempty"`
}

// ConntrackTCP is the state of a TCP connection.
type ConntrackTCP struct {
	// State is the kernel's number of the state (linux/netfilter/nf_conntrack_tcp.h).
	State uint8 `json:"state"`
	// Scale (window scaling) and Flags are those of the original direction and of the reply direction.
	Scale [2]uint8 `json:"scale"`
	Flags [2]uint8 `json:"flags"`
}

// Same reports whether both are the same connection in the same state, whatever their timeouts.
func (t ConntrackEntry) Same(o ConntrackEntry) bool {
	if (t.TCP == nil) != (o.TCP == nil) || t.TCP != nil && *t.TCP != *o.TCP {
		return false
	}
	return t.Connection == o.Connection && t.Mark == o.Mark && t.SeenReply == o.SeenReply && t.Assured == o.Assured
}

// HasAddr reports whether an address is an end of the connection, before or after translation.
func (c Connection) HasAddr(a netip.Addr) bool {
	return c.Src.Addr() == a || c.Dst.Addr() == a || c.ReplySrc.Addr() == a || c.ReplyDst.Addr() == a
}
