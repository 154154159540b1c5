// SPDX-License-Identifier: Apache-2.0

package model

import "net/netip"

// AddressMove is the live migration of a VM with addresses to another node. The target node creates and deletes it; the
// source node adds the VM's connections.
type AddressMove struct {
	Namespace string       `json:"namespace"`
	Name      string       `json:"name"`
	VM        string       `json:"machine"`
	Addrs     []netip.Addr `json:"addresses"`
	// Target is the node that the VM migrates to.
	Target string `json:"target"`
	// TargetPod is set on a move that no agent created: it allows the pod of this name, on the target node, to take over
	// the VM's addresses. Such a move has no connections, and agents do not change it.
	TargetPod string `json:"targetPod,omitempty"`
	// Source is the node that wrote the next fields: Connections in the agents' own format, and Departed when the VM does
	// not run there any more.
	Source      string `json:"source,omitempty"`
	Connections []byte `json:"connections,omitempty"`
	Departed    bool   `json:"left,omitempty"`
}
