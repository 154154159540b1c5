// SPDX-License-Identifier: Apache-2.0

// Package backend is an example: a back end of one's own for weft's mesh. docs/backends.md explains it.
package backend

import (
	"fmt"
	"net/netip"

	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/plan/mesh"
	"github.com/weft-net/weft/internal/state"
)

// Relay brings packets to other nodes through a router that knows the way, for nodes on networks of their own.
func Relay(router netip.Addr) mesh.Backend {
	return mesh.Backend{
		Name: "relay",
		// What this node needs for any peer at all.
		Node: func(p *mesh.Planner) mesh.Part { return p.Forwarding() },
		// What it needs for one prefix of one peer, or why that cannot be reached.
		Peer: func(p *mesh.Planner, peer model.Node, cidr netip.Prefix) (mesh.Part, *mesh.Problem) {
			_, underlay, problem := p.Ends(peer, cidr)
			if problem != nil {
				return mesh.Part{}, problem
			}
			if !underlay.Reaches(router) {
				return mesh.Part{}, &mesh.Problem{
					Nodes:   []string{p.Self().Name},
					Message: fmt.Sprintf("node %s: the router %s is no neighbour on %s", p.Self().Name, router, underlay.Link),
					Hint:    "name a router that is on the node's network",
				}
			}
			route := p.Route(cidr) // with weft's protocol and a metric of its own
			route.Gw, route.Link = router, underlay.Link
			return mesh.Part{Host: state.Space{Routes: []state.Route{route}}}, nil
		},
		// What other nodes, and the router, can learn of this one.
		Publish: func(p *mesh.Planner, family int) string {
			cidr, ok := p.PodCIDR(family)
			if !ok {
				return ""
			}
			return fmt.Sprintf(`{"Prefix":"%s"}`, cidr)
		},
	}
}
