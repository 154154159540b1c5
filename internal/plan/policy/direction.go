// SPDX-License-Identifier: Apache-2.0

package policy

import "github.com/weft-net/weft/internal/model"

// direction is that of a packet as its endpoint sees it; it is an index, too.
type direction int

const (
	ingress direction = iota
	egress
)

func directions() [2]direction { return [2]direction{ingress, egress} }

// String is Kubernetes' word.
func (d direction) String() string { return [...]string{"ingress", "egress"}[d] }

// suffix ends the names of chains.
func (d direction) suffix() string { return [...]string{"/in", "/out"}[d] }

// peer is where nft finds the other end's address.
func (d direction) peer() string { return [...]string{"saddr", "daddr"}[d] }

func direct(p *model.Policy, dir direction) model.PolicyDirection {
	if dir == ingress {
		return p.Ingress
	}
	return p.Egress
}
