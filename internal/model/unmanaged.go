// SPDX-License-Identifier: Apache-2.0

package model

import "net/netip"

// UnmanagedAddress is an address of a pod that no IPAM allocated (Calico's ipAddrsNoIpam), or a floating IP that is
// translated to the pod, as the pod's node publishes it to its peers.
type UnmanagedAddress struct {
	Addr netip.Addr `json:"address"`
	// Pod is "namespace/name"; UID distinguishes it from an earlier pod of that name.
	Pod string `json:"pod"`
	UID string `json:"uid,omitempty"`
	// Sequence increases each time another pod takes over the address: if two nodes publish it, the larger number wins.
	Sequence int `json:"turn,omitempty"`
}
