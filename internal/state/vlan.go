// SPDX-License-Identifier: Apache-2.0

package state

import (
	"fmt"
	"strings"
)

// PortVLANs are the VLANs of a bridge's port.
type PortVLANs struct {
	// Ranges are in ascending order and do not overlap.
	Ranges []VLANRange `json:"ranges"`
	// Others keeps further VLANs of the port, such as the bridge's default VLAN. Otherwise it has exactly the ranges.
	Others bool `json:"others,omitempty"`
}

// VLANRange is the VLANs from First to Last.
type VLANRange struct {
	First uint16 `json:"first"`
	Last  uint16 `json:"last"`
	// PVID makes it the VLAN of frames that arrive without a tag: one VLAN of a port.
	PVID bool `json:"pvid,omitempty"`
	// Untagged removes the tag from frames that leave.
	Untagged bool `json:"untagged,omitempty"`
}

// String prints the VLANs as bridge(8) does.
func (v PortVLANs) String() string {
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
