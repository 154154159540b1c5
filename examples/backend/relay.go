// SPDX-License-Identifier: Apache-2.0

// Command backend is an example of a mesh back end of one's own, in a module of its own: weft-agent that can do what
// weft-agent can, and has one back end more. docs/backends.md walks through it.
package main

import (
	"fmt"
	"net/netip"
	"os"
	"strings"

	"github.com/weft-net/weft/pkg/agent"
	"github.com/weft-net/weft/pkg/backend"
)

// name is what network.encapsulation calls it.
const name = "example.org/relay"

func main() {
	os.Exit(agent.Run("v0.1.0", Relay(os.Getenv("RELAY_ROUTERS"))))
}

// Relay brings packets to other nodes through a router that knows the way: a machine on the nodes' network, or one of
// the nodes, which then leads them on to the others. addresses are the router's, one of each family that pods have,
// with commas.
func Relay(addresses string) backend.Backend {
	routers, err := parse(addresses)
	return backend.Backend{
		Name: name,
		// What is wrong with the configuration. It is asked only where the back end is used.
		Check: func(backend.Config) error {
			if err != nil {
				return fmt.Errorf("RELAY_ROUTERS %q in the agent's environment does not name the router's addresses: %w",
					addresses, err)
			}
			return nil
		},
		// What this node needs for any peer at all.
		Node: func(p *backend.Planner) backend.Part { return p.Forwarding() },
		// What it needs for one prefix of one peer, or why that cannot be reached.
		Peer: func(p *backend.Planner, peer backend.Node, cidr netip.Prefix) (backend.Part, *backend.Problem) {
			far, underlay, problem := p.Ends(peer, cidr)
			if problem != nil {
				return backend.Part{}, problem
			}
			next := routers[cidr.Addr().Is6()]
			if underlay.Address == next { // it is this node
				next = far
			}
			if !underlay.Reaches(next) {
				return backend.Part{}, &backend.Problem{
					Nodes:   []string{p.Self().Name},
					Message: fmt.Sprintf("node %s: the router %s is no neighbor on %s", p.Self().Name, next, underlay.Link),
					Hint:    "name a router that is on the node's network",
				}
			}
			route := p.Route(cidr) // with weft's protocol and a metric of its own
			route.Gw, route.Link = next, underlay.Link
			return backend.Part{Host: backend.Space{Routes: []backend.Route{route}}}, nil
		},
		// What other nodes, and the router, can learn of this one.
		Publish: func(p *backend.Planner, family int) string {
			cidr, ok := p.PodCIDR(family)
			if !ok {
				return ""
			}
			return fmt.Sprintf(`{"Prefix":"%s"}`, cidr)
		},
	}
}

// parse gives the router's address of each family, of IPv6 under true.
func parse(addresses string) (map[bool]netip.Addr, error) {
	out := map[bool]netip.Addr{}
	for text := range strings.SplitSeq(addresses, ",") {
		a, err := netip.ParseAddr(text)
		if err != nil {
			return nil, err
		}
		out[a.Is6()] = a
	}
	return out, nil
}
