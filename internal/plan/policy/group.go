// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"cmp"
	"net/netip"
	"slices"
	"strings"

	"github.com/weft-net/weft/internal/model"
)

// groupSpec is the definition of a group.
type groupSpec struct {
	// id is equal for equal groups.
	id string
	// terms select pods; any: all pods. local: only pods with an endpoint on this node.
	terms []term
	any   bool
	local bool
	// networks are the networks of the addresses; "" is the cluster's.
	networks []string
	// port is not nil if the elements are ports of that name rather than addresses.
	port *portName
	// nodes select nodes; then the group has no pods.
	nodes []selector
}

// element is an address of a group, with the named port if it is a group of ports.
type element struct {
	addr     netip.Addr
	protocol model.Protocol
	port     uint16
}

func (e element) compare(o element) int {
	return cmp.Or(e.addr.Compare(o.addr), strings.Compare(string(e.protocol), string(o.protocol)),
		cmp.Compare(e.port, o.port))
}

// selects reports whether the pods of the identity are in the group.
func (g *groupSpec) selects(id *identity) bool {
	return g.any || slices.ContainsFunc(g.terms, func(t term) bool { return t.matches(id) })
}

// of returns the elements that a pod adds to the group.
func (g *groupSpec) of(p *pod) []element {
	if g.local && p.locals == 0 {
		return nil
	}
	var out []element
	for h := range p.networkAddrs {
		if !slices.Contains(g.networks, h.network) {
			continue
		}
		if e := (element{addr: h.addr}); g.port == nil {
			if !slices.Contains(out, e) { // several interfaces may have the same address
				out = append(out, e)
			}
			continue
		}
		for _, port := range p.ports() {
			e := element{h.addr, port.Protocol, port.Number}
			if g.port.is(port) && !slices.Contains(out, e) {
				out = append(out, e)
			}
		}
	}
	return out
}

func (n *portName) is(p model.PodPort) bool {
	return p.Name == n.name && (n.protocol == "" || n.protocol == p.Protocol)
}
