// SPDX-License-Identifier: Apache-2.0

package model

import "net/netip"

// AddressMove is a virtual machine that is about to go to another node with an address. The node where it is awaited
// writes it, and takes it away when it is over; the node where the machine runs adds what its connections are.
type AddressMove struct {
	Namespace string       `json:"namespace"`
	Name      string       `json:"name"`
	Machine   string       `json:"machine"`
	Addrs     []netip.Addr `json:"addresses"`
	// Target is the node where the machine is awaited.
	Target string `json:"target"`
	// TargetPod is on a move that is not an agent's: it allows the pod of this name, on the target node, to take the
	// machine's addresses over. Such a move carries no connections, and agents leave it alone.
	TargetPod string `json:"targetPod,omitempty"`
	// Source is the node that wrote what follows: Connections in its own words, and Left when the machine is no more
	// there.
	Source      string `json:"source,omitempty"`
	Connections []byte `json:"connections,omitempty"`
	Left        bool   `json:"left,omitempty"`
}
