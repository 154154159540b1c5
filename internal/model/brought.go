// SPDX-License-Identifier: Apache-2.0

package model

import "net/netip"

// Brought is an address that a pod brings along past IPAM, or that is to lead to it, as its node tells the others of
// it.
type Brought struct {
	Addr netip.Addr `json:"address"`
	// Pod is "namespace/name"; UID tells it from an earlier one of the name.
	Pod string `json:"pod"`
	UID string `json:"uid,omitempty"`
	// Turn counts who had the address one after the other: of two nodes that say they have it the later one does.
	Turn int `json:"turn,omitempty"`
}
