// SPDX-License-Identifier: Apache-2.0

package state

import (
	"fmt"
	"strings"
)

// PortVlans are the VLANs of a bridge's port.
type PortVlans struct {
	// Ranges are in ascending order and do not overlap.
	Ranges []VlanRange `json:"ranges"`
	// Others leaves what the port has besides, such as the bridge's default VLAN. Otherwise it has exactly the ranges.
	Others bool `json:"others,omitempty"`
}

// VlanRange is the VLANs from First to Last.
type VlanRange struct {
	First uint16 `json:"first"`
	Last  uint16 `json:"last"`
	// PVID is the VLAN of what comes in without a tag: one VLAN of a port.
	PVID bool `json:"pvid,omitempty"`
	// Untagged takes the tag off what goes out.
	Untagged bool `json:"untagged,omitempty"`
}

// String prints the VLANs with the words of bridge(8).
func (v PortVlans) String() string {
	words := make([]string, 0, len(v.Ranges))
	for _, r := range v.Ranges {
		s := fmt.Sprint(r.First)
		if r.Last > r.First {
			s += fmt.Sprintf("-%d", r.Last)
		}
		if r.PVID {
			s += " pvid"
		}
		if r.Untagged {
			s += " untagged"
		}
		words = append(words, s)
	}
	return strings.Join(words, ", ")
}
