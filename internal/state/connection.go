// SPDX-License-Identifier: Apache-2.0

package state

import "net/netip"

// Connection is one that the kernel tracks.
type Connection struct {
	// Proto is the number of the transport protocol.
	Proto uint8 `json:"proto"`
	// From is who began it, To whom it was sent to; the ports of a protocol without ports are 0.
	From netip.AddrPort `json:"from"`
	To   netip.AddrPort `json:"to"`
	// Answers is who answers: To, or what that was translated to. Back is where the answers go: From, or what that was
	// translated to.
	Answers netip.AddrPort `json:"answers"`
	Back    netip.AddrPort `json:"back"`
}

// Party is who begins or answers connections.
type Party struct {
	Addr            netip.Addr
	Begins, Answers bool
}
