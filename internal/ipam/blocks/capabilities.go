// SPDX-License-Identifier: Apache-2.0

package blocks

import "github.com/weft-net/weft/internal/ipam"

// Capabilities says what it can beside giving: choose before it gives, take over from another node, keep for machines.
func (a *Allocator) Capabilities() ipam.Capabilities {
	return ipam.Capabilities{Hold: a, Move: a, Keep: a}
}

// Capabilities are those of an Allocator; a Cluster chooses in its own way.
func (c *Cluster) Capabilities() ipam.Capabilities {
	return ipam.Capabilities{Hold: c, Move: c, Keep: c}
}
