// SPDX-License-Identifier: Apache-2.0

package mesh

import (
	"encoding/json"
	"net/netip"
	"slices"

	"github.com/weft-net/weft/internal/state"
)

// Peer is another node.
type Peer struct {
	Name string
	// Backend is the backend to reach it; empty if it is unknown.
	Backend  string
	Addrs    []netip.Addr
	PodCIDRs []netip.Prefix
	// Blocks are its blocks, and the single addresses that it borrows.
	Blocks []netip.Prefix

	// These are the fragment's of nearly all peers, and more is the fragment of the others: a fragment is large, and there
	// may be ten thousand peers.
	routes []state.Route
	neighs []state.Neigh
	fdbs   []state.FDB
	more   *state.Fragment
}

// Fragment returns the routes to its pods; empty but for the owner if there is a problem.
func (p *Peer) Fragment() state.Fragment {
	if p.more != nil {
		return *p.more
	}
	return state.Fragment{Owner: OwnerPeer + p.Name, Host: state.Space{Routes: p.routes, Neighs: p.neighs, FDBs: p.fdbs}}
}

// IsReached reports whether the host's part of the fragment is not empty.
func (p *Peer) IsReached() bool {
	return p.more != nil && !p.more.Host.Empty() || len(p.routes)+len(p.neighs)+len(p.fdbs) > 0
}

// Routes returns the fragment's routes in the host, Neighs and FDBs its neighbors and forwarding entries.
func (p *Peer) Routes() []state.Route {
	if p.more != nil {
		return p.more.Host.Routes
	}
	return p.routes
}

// Neighs returns the fragment's neighbors in the host.
func (p *Peer) Neighs() []state.Neigh {
	if p.more != nil {
		return p.more.Host.Neighs
	}
	return p.neighs
}

// FDBs returns the fragment's forwarding entries in the host.
func (p *Peer) FDBs() []state.FDB {
	if p.more != nil {
		return p.more.Host.FDBs
	}
	return p.fdbs
}

// SetHost replaces the fragment's part of the host, and its effects.
func (p *Peer) SetHost(host state.Space, effects []state.Effect) {
	p.routes, p.neighs, p.fdbs, p.more = host.Routes, host.Neighs, host.FDBs, nil
	host.Routes, host.Neighs, host.FDBs = nil, nil, nil
	if !host.Empty() || len(effects) > 0 {
		host.Routes, host.Neighs, host.FDBs = p.routes, p.neighs, p.fdbs
		p.routes, p.neighs, p.fdbs = nil, nil, nil
		p.more = &state.Fragment{Owner: OwnerPeer + p.Name, Host: host, Effects: effects}
	}
}

// peerJSON is a Peer in JSON. Its keys are stable.
type peerJSON struct {
	Name     string         `json:"name"`
	Backend  string         `json:"backend,omitempty"`
	Addrs    []netip.Addr   `json:"addresses"`
	PodCIDRs []netip.Prefix `json:"podCIDRs"`
	Blocks   []netip.Prefix `json:"blocks,omitempty"`
	Fragment state.Fragment `json:"fragment"`
}

// MarshalJSON encodes the peer with its fragment.
func (p *Peer) MarshalJSON() ([]byte, error) {
	return json.Marshal(peerJSON{p.Name, p.Backend, p.Addrs, p.PodCIDRs, p.Blocks, p.Fragment()})
}

// UnmarshalJSON decodes the peer with its fragment.
func (p *Peer) UnmarshalJSON(b []byte) error {
	var in peerJSON
	if err := json.Unmarshal(b, &in); err != nil {
		return err
	}
	*p = Peer{Name: in.Name, Backend: in.Backend, Addrs: in.Addrs, PodCIDRs: in.PodCIDRs, Blocks: in.Blocks}
	p.SetHost(in.Fragment.Host, in.Fragment.Effects)
	return nil
}

// PeerPath is how one prefix of a peer is reached, for status output and probes.
type PeerPath struct {
	CIDR netip.Prefix
	// Link is the outgoing link; Tunnel: it is a tunnel.
	Link   string
	Tunnel bool
	// MTU is the link's MTU, in bytes; 0 if it is not known.
	MTU int
	// Gateway is the route's, inside of a tunnel; invalid if it has none.
	Gateway netip.Addr
	// Far is the peer's underlay address, Underlay this node's link to it.
	Far      netip.Addr
	Underlay Underlay
	// Learned: the route was learned by BGP. Its gateway may be a router, which chooses the rest of the path.
	Learned bool
}

// PeerPaths returns the paths to a peer's pods, one for each prefix that is reached.
func (t Topology) PeerPaths(p *Peer) []PeerPath {
	var out []PeerPath
	for _, route := range p.Routes() {
		if slices.Contains(p.PodCIDRs, route.Dst) || slices.Contains(p.Blocks, route.Dst) {
			out = append(out, t.peerPath(p, route.Dst, route))
		}
	}
	if len(t.Learned) == 0 {
		return out
	}
	for _, c := range slices.Concat(p.PodCIDRs, p.Blocks) {
		if slices.ContainsFunc(out, func(r PeerPath) bool { return r.CIDR == c }) {
			continue
		}
		if route, ok := t.learnedRoute(c); ok {
			r := t.peerPath(p, c, route)
			r.Learned = true
			out = append(out, r)
		}
	}
	return out
}

// learnedRoute returns the most specific learned route to a prefix: routers may announce several as one.
func (t Topology) learnedRoute(c netip.Prefix) (best state.Route, ok bool) {
	for i := range t.Learned {
		for _, r := range t.Learned[i].Host.Routes {
			if r.Dst.Bits() <= c.Bits() && r.Dst.Contains(c.Addr()) && (!ok || r.Dst.Bits() > best.Dst.Bits()) {
				best, ok = r, true
			}
		}
	}
	return best, ok
}

// peerPath returns the path to a prefix of a peer by a route.
func (t Topology) peerPath(p *Peer, c netip.Prefix, route state.Route) PeerPath {
	r := PeerPath{CIDR: c, Link: route.Link, Gateway: route.Gw}
	for _, u := range t.Underlay {
		if familyOf(u.Address) == familyOf(c.Addr()) {
			r.Underlay = u
		}
	}
	for _, a := range p.Addrs {
		if !r.Far.IsValid() && familyOf(a) == familyOf(c.Addr()) {
			r.Far = a
		}
	}
	if r.MTU = r.Underlay.MTU; r.Link != r.Underlay.Link {
		for _, l := range t.Node.Host.Links {
			if l.Name == r.Link {
				r.Tunnel, r.MTU = true, l.MTU
			}
		}
	} else if route.Gw.IsValid() && !IsLearned(route) {
		r.Far = route.Gw
	}
	return r
}
