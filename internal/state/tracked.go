// SPDX-License-Identifier: Apache-2.0

package state

import "net/netip"

// Tracked is a connection with all that another kernel must be told to go on tracking it.
type Tracked struct {
	Connection
	// Timeout is for how many seconds it is remembered without a packet.
	Timeout uint32 `json:"timeout,omitempty"`
	Mark    uint32 `json:"mark,omitempty"`
	// Answered tells that packets went both ways, Assured that it is kept when room is short.
	Answered bool `json:"answered,omitempty"`
	Assured  bool `json:"assured,omitempty"`
	// TCP is nil for other protocols.
	TCP *TrackedTCP `json:"tcp,omitempty"`
}

// TrackedTCP is what is known of a TCP connection beside its ends.
type TrackedTCP struct {
	// State is the kernel's number of it (linux/netfilter/nf_conntrack_tcp.h).
	State uint8 `json:"state"`
	// Scale and Flags are those of both directions, that of who began it first.
	Scale [2]uint8 `json:"scale"`
	Flags [2]uint8 `json:"flags"`
}

// Same tells whether both are the same connection in the same state; for how long it is remembered does not matter.
func (t Tracked) Same(o Tracked) bool {
	if (t.TCP == nil) != (o.TCP == nil) || t.TCP != nil && *t.TCP != *o.TCP {
		return false
	}
	return t.Connection == o.Connection && t.Mark == o.Mark && t.Answered == o.Answered && t.Assured == o.Assured
}

// Concerns tells whether an address is at one of the connection's ends, before or after translation.
func (c Connection) Concerns(a netip.Addr) bool {
	return c.From.Addr() == a || c.To.Addr() == a || c.Answers.Addr() == a || c.Back.Addr() == a
}
