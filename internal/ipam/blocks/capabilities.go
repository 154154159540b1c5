// SPDX-License-Identifier: Apache-2.0

package blocks

import "github.com/weft-net/weft/internal/ipam"

// Capabilities returns the optional features: reservations, transfers between nodes, and addresses that stay with VMs.
func (a *Allocator) Capabilities() ipam.Capabilities {
	return ipam.Capabilities{Reserve: a, Transfer: a, Sticky: a}
}

// Capabilities returns the features of an Allocator; a Cluster has its own Reserve.
func (c *Cluster) Capabilities() ipam.Capabilities {
	return ipam.Capabilities{Reserve: c, Transfer: c, Sticky: c}
}

// NotSticky returns why addresses do not stay with virtual machines.
func (a *Allocator) NotSticky(ipam.Request) (why string) {
	if a.e.cfg.Objects == nil {
		return "this agent has no datastore"
	}
	return ""
}
