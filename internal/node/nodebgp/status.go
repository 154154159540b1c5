// SPDX-License-Identifier: Apache-2.0

package nodebgp

import (
	"net/netip"
	"slices"

	"github.com/weft-net/weft/internal/plan/bgp"
)

// Status is the state of BGP on a node. Its JSON keys are stable.
type Status struct {
	Node     string     `json:"node"`
	ASN      uint32     `json:"asNumber"`
	RouterID netip.Addr `json:"routerID,omitzero"`
	// Running: weft-bgp can be reached. Error is why it cannot be, or why it does not do what is planned.
	Running bool   `json:"running"`
	Error   string `json:"error,omitempty"`
	// Synced: the routes of all peers are known. Until then those of an earlier speaker stay.
	Synced    bool            `json:"synced"`
	Peers     []bgp.PeerState `json:"peers"`
	Announced []bgp.Announced `json:"announced"`
	Learned   []LearnedRoute  `json:"learned"`
	Problems  []bgp.Problem   `json:"problems,omitempty"`
}

// LearnedRoute is a learned route.
type LearnedRoute struct {
	bgp.Route
	// Link is the interface of the route in the kernel; empty: the next hop cannot be reached.
	Link string `json:"link,omitempty"`
}

// Status returns the state.
func (n *Node) Status() Status {
	n.mu.Lock()
	defer n.mu.Unlock()
	s := Status{
		Node: n.cfg.Node, ASN: n.plan.ASN, RouterID: n.plan.RouterID, Running: n.connected, Error: n.trouble, Synced: n.synced,
		Peers: slices.Clone(n.peers), Announced: n.plan.Announced, Problems: n.plan.Problems,
	}
	n.hops.mu.Lock()
	defer n.hops.mu.Unlock()
	for _, r := range sorted(n.routesLocked()) {
		l := LearnedRoute{Route: r}
		if route, _, ok := kernelRoute(r, n.hops.last); ok {
			l.Link = route.Link
		}
		s.Learned = append(s.Learned, l)
	}
	return s
}
