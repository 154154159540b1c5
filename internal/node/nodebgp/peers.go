// SPDX-License-Identifier: Apache-2.0

package nodebgp

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/plan/bgp"
)

// established is BGP's state of a session in which routes are exchanged.
const established = "established"

// tookPeersLocked takes new states of peers, counts the sessions that are lost, and returns events about them and about
// routes that are refused. A peer of before that has no session any more was removed from the configuration.
func (n *Node) tookPeersLocked(now []bgp.PeerState) (events []model.Event) {
	was := map[netip.Addr]bgp.PeerState{}
	for _, p := range n.peers {
		was[p.Addr] = p
	}
	for _, p := range now {
		old := was[p.Addr]
		if old.Session == established && p.Session != established {
			n.lost[p.Addr]++
			why := ""
			if p.Error != "" {
				why = ": " + p.Error
			}
			events = append(events, model.Event{
				Warning: true, Reason: "BGPSessionLost",
				Message: fmt.Sprintf("session with peer %s (%s, AS %d) is lost%s", p.Where(), p.Name, p.ASN, why),
			})
		}
		if refused(p) > 0 && refused(old) == 0 {
			events = append(events, model.Event{
				Reason: "BGPRoutesRefused",
				Message: fmt.Sprintf("%d of %d routes of peer %s (%s, AS %d) are not accepted: a filter refuses them, or they are of pods, "+
					"Services or nodes", refused(p), p.Received, p.Where(), p.Name, p.ASN),
			})
		}
	}
	n.peers = now
	return events
}

// refused returns how many routes of a peer are not accepted.
func refused(p bgp.PeerState) uint64 {
	if p.Received < p.Accepted { // counted one after the other
		return 0
	}
	return p.Received - p.Accepted
}

// Peer is a session for the metrics.
type Peer struct {
	bgp.PeerState
	// Up: the session is established.
	Up bool
	// Lost is how often it was lost since the agent started.
	Lost uint64
}

// Peers returns the sessions.
func (n *Node) Peers() []Peer {
	n.mu.Lock()
	defer n.mu.Unlock()
	out := make([]Peer, 0, len(n.peers))
	for _, p := range slices.Clone(n.peers) {
		up := p.Session == established && n.connected
		out = append(out, Peer{PeerState: p, Up: up, Lost: n.lost[p.Addr]})
	}
	return out
}

// Running reports whether weft-bgp can be reached.
func (n *Node) Running() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.connected
}
