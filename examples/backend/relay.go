// SPDX-License-Identifier: Apache-2.0

// Command backend is an example of a backend of the mesh in a module of its own: weft-agent with one more backend.
// docs/tasks/write-a-backend.md walks through it.
package main

import (
	"fmt"
	"net/netip"
	"os"
	"strings"

	"github.com/weft-net/weft/pkg/agent"
	"github.com/weft-net/weft/pkg/backend"
)

// name is the value of network.encapsulation that selects the backend.
const name = "example.org/relay"

func main() {
	os.Exit(agent.Run("v0.1.0", Relay(os.Getenv("RELAY_ROUTERS"))))
}

// Relay forwards packets to other nodes through a router: a host on the nodes' network, or one of the nodes. addresses
// are the router's addresses, one of each family that pods have, separated by commas.
func Relay(addresses string) backend.Backend {
	routers, err := parse(addresses)
	return backend.Backend{
		Name: name,
		// What is wrong with the configuration. It is asked only where the backend is used.
		Check: func(backend.Config) error {
			if err != nil {
				return fmt.Errorf("RELAY_ROUTERS %q in the agent's environment does not name the router's addresses: %w",
					addresses, err)
			}
			return nil
		},
		// Node plans what this node needs for all peers.
		Node: func(p *backend.Planner) backend.Part { return p.Forwarding() },
		// Peer plans what it needs for one prefix of one peer, or returns why that is unreachable.
		Peer: func(p *backend.Planner, peer backend.Node, cidr netip.Prefix) (backend.Part, *backend.Problem) {
			far, underlay, problem := p.Endpoints(peer, cidr)
			if problem != nil {
				return backend.Part{}, problem
			}
			next := routers[cidr.Addr().Is6()]
			if underlay.Address == next { // this node is the router
				next = far
			}
			if !underlay.IsNeighbor(next) {
				return backend.Part{}, &backend.Problem{
					Nodes:   []string{p.Self().Name},
					Message: fmt.Sprintf("node %s: the router %s is not a neighbor on %s", p.Self().Name, next, underlay.Link),
					Hint:    "name a router that is on the node's network",
				}
			}
			route := p.Route(cidr) // with weft's protocol and a metric
			route.Gw, route.Link = next, underlay.Link
			return backend.Part{Host: backend.Space{Routes: []backend.Route{route}}}, nil
		},
		// Publish returns the data for other nodes and the router.
		Publish: func(p *backend.Planner, family int) string {
			cidr, ok := p.PodCIDR(family)
			if !ok {
				return ""
			}
			return fmt.Sprintf(`{"Prefix":"%s"}`, cidr)
		},
	}
}

// parse returns the router's address of each family; the key is whether it is IPv6.
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
