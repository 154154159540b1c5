// SPDX-License-Identifier: Apache-2.0

package collect

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/weft-net/weft/internal/node/nodestatus"
	"github.com/weft-net/weft/internal/node/probe"
	"github.com/weft-net/weft/internal/plan/mesh"
)

// ofMesh reads the state of the mesh, and probes peers.
func (s *collection) ofMesh(ctx context.Context) {
	if s.from.Mesh == nil {
		return
	}
	status, err := s.from.Mesh()
	if err == nil && status.Error != "" {
		err = errors.New(status.Error)
	}
	if err != nil {
		s.found(nodestatus.Bad, "mesh", "see weft mesh on the node", "%v", err)
	}
	t := status.Topology
	reached := 0
	for _, p := range t.Peers {
		if len(t.PeerPaths(p)) > 0 {
			reached++
		}
	}
	for _, p := range t.Problems {
		s.found(nodestatus.Bad, "mesh", p.Hint, "%s", p.Message)
	}
	for _, f := range status.Fragments {
		if !f.OK {
			s.found(nodestatus.Bad, "mesh", "see weft mesh --live on the node", "%s: %s", f.Owner, f.Error)
		}
	}
	s.set(func(st *nodestatus.Status) { st.Peers, st.Reached, st.MTU = len(t.Peers), reached, t.PodMTU() })
	if len(t.Peers) > 0 {
		s.ping(ctx, t)
	}
}

// ping probes peers as weft mesh ping does.
func (s *collection) ping(ctx context.Context, t mesh.Topology) {
	const check, again = "mesh ping", "weft mesh ping on the node probes all peers, and takes longer"
	peers := probed(t)
	targets, unplanned, err := probe.Targets(t, peers)
	var results []probe.Result
	untested := 0
	if err == nil {
		results, untested, err = probe.Within(ctx, nil, targets)
	}
	if err != nil {
		s.found(nodestatus.Skip, check, again, "not checked: %v", err)
	}
	if untested > 0 {
		s.found(nodestatus.Skip, check, again, "%d of %d paths were not probed: the time ran out", untested, len(targets))
	}
	if all := len(t.Peers); len(peers) < all {
		s.found(nodestatus.Skip, check, again, "%d of %d peers were not probed: a node probes the next %d", all-len(peers), all, maxProbed)
	}
	learned := 0
	for _, u := range unplanned {
		if u.Learned {
			learned++
			continue
		}
		if !slices.ContainsFunc(t.Problems, func(p mesh.Problem) bool { return slices.Contains(p.Nodes, u.Peer) }) {
			s.found(nodestatus.Bad, check, "see weft mesh on the node", "peer %s: %s", u.Peer, u.Message)
		}
	}
	if learned > 0 {
		s.found(nodestatus.Skip, check, "see weft bgp on the node, and weft trace", "%d of %d peers were not probed: their routes were learned by BGP",
			learned, len(t.Peers))
	}
	var worst *nodestatus.Path
	for _, r := range results {
		if r.Problem != probe.None {
			s.found(nodestatus.Bad, check, r.Hint, "%s: %s", r.Problem, r.Message)
		}
		path := nodestatus.Path{Node: s.from.Node, Peer: r.Peer, MTU: r.MTU, Passes: r.Passes, Fault: string(r.Problem)}
		if path.Worse(worst) {
			worst = &path
		}
	}
	s.set(func(st *nodestatus.Status) { st.Worst = worst })
}

// probed returns the peers to probe: all, or in a large cluster those whose names come after the node's, so that each
// node is probed by as many others.
func probed(t mesh.Topology) []string {
	var names []string
	for _, p := range t.Peers {
		names = append(names, p.Name)
	}
	if len(names) <= maxProbed {
		return names
	}
	slices.Sort(names)
	at, _ := slices.BinarySearchFunc(names, t.Self, strings.Compare)
	return slices.Concat(names[at:], names[:at])[:maxProbed]
}
