// SPDX-License-Identifier: Apache-2.0

package probe

import (
	"slices"

	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/plan/mesh"
)

// Unplanned is a peer that is not probed: the plan has no route to it, or only learned ones.
type Unplanned struct {
	Peer    string `json:"peer"`
	Message string `json:"message"`
	// Learned: the peer is reached by routes learned by BGP. Routers may be between, at which a probe would end, and the
	// peer drops what is for addresses that no pod has.
	Learned bool `json:"learned,omitempty"`
}

// blockPath is a path that several blocks of a peer may share.
type blockPath struct {
	link string
	v6   bool
}

// probePaths returns the paths to probe: of blocks with the same path only the first, because the peer's kernel limits
// the rate of ICMP errors for addresses that no pod has.
func probePaths(p *mesh.Peer, paths []mesh.PeerPath) []mesh.PeerPath {
	probed := map[blockPath]bool{}
	return slices.DeleteFunc(slices.Clone(paths), func(r mesh.PeerPath) bool {
		path := blockPath{r.Link, r.CIDR.Addr().Is6()}
		if !slices.Contains(p.Blocks, r.CIDR) {
			return false
		}
		again := probed[path]
		probed[path] = true
		return again
	})
}

// Targets returns the targets of the named peers, or of all if none is named, and the peers without a route. It returns an
// error for a peer that is not in the mesh.
func Targets(t mesh.Topology, peers []string) (targets []Target, missing []Unplanned, err error) {
	missing = []Unplanned{}
	for _, name := range peers {
		if !slices.ContainsFunc(t.Peers, func(p *mesh.Peer) bool { return p.Name == name }) {
			return nil, nil, model.Errorf(model.CodeInvalidConf, "weft mesh shows them", "peer %q is not in the mesh of node %s",
				name, t.Self)
		}
	}
	for _, p := range t.Peers {
		if len(peers) > 0 && !slices.Contains(peers, p.Name) {
			continue
		}
		paths := t.PeerPaths(p)
		learned := false
		for _, r := range probePaths(p, paths) {
			if learned = learned || r.Learned; r.Learned {
				continue
			}
			targets = append(targets, Target{
				Name: p.Name, Backend: p.Backend, Underlay: r.Far, UnderlayMTU: r.Underlay.MTU,
				Overlay: r.CIDR.Addr(), OverlayMTU: largest(t, r), Tunnel: r.Tunnel,
			})
		}
		if wanted := len(p.PodCIDRs) + len(p.Blocks); len(paths) < wanted || wanted == 0 && !t.WaitsForAddresses(p) {
			u := Unplanned{Peer: p.Name, Message: "the plan has no route to it"}
			for _, problem := range t.Problems {
				if slices.Contains(problem.Nodes, p.Name) {
					u.Message = problem.String()
				}
			}
			missing = append(missing, u)
		} else if learned {
			missing = append(missing, Unplanned{p.Name, "its routes were learned by BGP: see weft bgp, and weft trace", true})
		}
	}
	return targets, missing, nil
}

// largest returns the size of the largest packet that pods send over a path, in bytes: with both families a tunnel of IPv4
// carries more, and the address that answers may be a pod's.
func largest(t mesh.Topology, r mesh.PeerPath) int {
	mtu := r.MTU
	if pods := t.PodMTU(); pods > 0 && pods < mtu {
		mtu = pods
	}
	return max(mtu, 68) // IPv4's least
}
