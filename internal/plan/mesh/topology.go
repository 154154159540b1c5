// SPDX-License-Identifier: Apache-2.0

package mesh

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/state"
)

// Topology is the plan of the mesh for one node. Its JSON keys are stable.
type Topology struct {
	Self    string `json:"self"`
	Backend string `json:"backend"`
	// PodCIDRs are self's own.
	PodCIDRs []netip.Prefix `json:"podCIDRs"`
	// Pools are the cluster's pools that are routed, by name.
	Pools []string `json:"pools,omitempty"`
	// Blocks are self's blocks of the cluster's pools, and single addresses that it borrows from other nodes' blocks.
	Blocks   []netip.Prefix `json:"blocks,omitempty"`
	Underlay []Underlay     `json:"underlay"`
	// LostFamilies are the families (4, 6) of which no link has self's address, usually for a moment, while it is changed.
	// Nothing is planned for them, and existing objects should stay.
	LostFamilies []int `json:"lost,omitempty"`
	// Node is what all peers need on this node.
	Node  state.Fragment `json:"node"`
	Peers []*Peer        `json:"peers"` // sorted by name
	// Learned are the routes that were learned by BGP, one fragment for each peer, sorted by owner.
	Learned []state.Fragment `json:"learned,omitempty"`
	// Tunnels are run by a process in user space.
	Tunnels []Tunnel `json:"tunnels,omitempty"`
	// MTU is the size of the largest packet of a pod that fits through every tunnel, in bytes; 0 without tunnels.
	MTU int `json:"mtu,omitempty"`
	// BridgedFamilies are the families (4, 6) of which self has a bridge for pods, from an earlier configuration.
	BridgedFamilies []int `json:"bridged,omitempty"`
	// Publish is what this node should publish to its peers: the values of flannel's annotations and leases.
	Publish model.Published `json:"publish"`
	// VTEP is self's VXLAN tunnel endpoint, which is published separately.
	VTEP     model.VTEPData `json:"vtep,omitzero"`
	Problems []Problem      `json:"problems"`
	// bare: the sets of senders in Node have no elements. Those of ten thousand peers are large, and follow from Peers.
	bare bool
}

// MarshalJSON encodes the whole topology.
func (t Topology) MarshalJSON() ([]byte, error) {
	type plain Topology
	return json.Marshal(plain(t.Whole()))
}

// Underlay is the link that packets of one family leave through.
type Underlay struct {
	Link    string     `json:"link"`
	Address netip.Addr `json:"address"` // self's own
	// OnLink are the prefixes whose addresses are neighbors.
	OnLink []netip.Prefix `json:"onLink"`
	// MTU is the link's, in bytes.
	MTU int `json:"mtu"`
}

// IsNeighbor reports whether an address is on-link.
func (u Underlay) IsNeighbor(a netip.Addr) bool {
	return slices.ContainsFunc(u.OnLink, func(p netip.Prefix) bool { return p.Contains(a) })
}

// Problem is a contradiction in the facts about one or more nodes.
type Problem struct {
	Nodes   []string `json:"nodes"`
	Message string   `json:"message"`
	Hint    string   `json:"hint"`
}

// String returns the message and the hint.
func (p Problem) String() string { return p.Message + " (" + p.Hint + ")" }

// Fragments returns everything that should exist, one fragment for each owner.
func (t Topology) Fragments() []state.Fragment {
	out := make([]state.Fragment, 0, 1+len(t.Peers))
	if !t.Node.Host.Empty() {
		out = append(out, t.Whole().Node)
	}
	for i := range t.Peers { // a peer is large, and there may be thousands
		if t.Peers[i].IsReached() {
			out = append(out, t.Peers[i].Fragment())
		}
	}
	return append(out, t.Learned...)
}

// PodMTU returns the size of the largest packet of a pod that fits through every tunnel, in bytes; 0 without tunnels.
func (t Topology) PodMTU() int { return t.MTU }

// PacketMTU returns PodMTU, or without tunnels the smallest MTU of the underlay.
func (t Topology) PacketMTU() int {
	least := t.MTU
	for _, u := range t.Underlay {
		if t.MTU == 0 && u.MTU > 0 && (least == 0 || u.MTU < least) {
			least = u.MTU
		}
	}
	return least
}

// Text prints the topology for users.
func (t Topology) Text() string {
	var b strings.Builder
	fmt.Fprintf(&b, "node %s, backend %s\n", t.Self, t.Backend)
	for _, c := range t.PodCIDRs {
		fmt.Fprintf(&b, "  pods      %s\n", c)
	}
	for _, c := range t.Blocks {
		fmt.Fprintf(&b, "  block     %s\n", c)
	}
	for _, u := range t.Underlay {
		fmt.Fprintf(&b, "  underlay  %s on %s, MTU %d\n", u.Address, u.Link, u.MTU)
	}
	for _, line := range Lines(t.Node.Host) {
		fmt.Fprintf(&b, "  %s\n", line)
	}
	for _, tunnel := range t.Tunnels {
		fmt.Fprintf(&b, "  %s\n", tunnel)
	}
	through := t.tunnelLines()
	for _, p := range t.Peers {
		fmt.Fprintf(&b, "peer %s", p.Name)
		if p.Backend != "" && p.Backend != t.Backend {
			fmt.Fprintf(&b, ", backend %s", p.Backend)
		}
		b.WriteString("\n")
		lines := append(Lines(p.Fragment().Host), through[p.Name]...)
		for _, r := range t.PeerPaths(p) {
			if r.Learned {
				lines = append(lines, fmt.Sprintf("learned route %s dev %s", r.CIDR, r.Link))
			}
		}
		for _, line := range lines {
			fmt.Fprintf(&b, "  %s\n", line)
		}
		if len(lines) == 0 {
			b.WriteString("  " + t.noRouteReason(p) + "\n")
		}
	}
	for _, p := range t.Problems {
		fmt.Fprintf(&b, "problem: %s\n  hint: %s\n", p.Message, p.Hint)
	}
	return b.String()
}

// noRouteReason returns why there is no route to a peer.
func (t Topology) noRouteReason(p *Peer) string {
	if t.WaitsForAddresses(p) {
		return "no addresses yet"
	}
	return "not reached"
}

// WaitsForAddresses reports whether a peer has no block yet, so that there is nothing to reach.
func (t Topology) WaitsForAddresses(p *Peer) bool {
	return len(t.Pools) > 0 && len(p.PodCIDRs)+len(p.Blocks) == 0
}

// Lines returns the objects of a namespace that a mesh uses, one line each.
func Lines(s state.Space) []string {
	var out []string
	for _, v := range s.Links {
		out = append(out, v.String())
	}
	for _, v := range s.Addrs {
		out = append(out, v.String())
	}
	for _, v := range s.Neighs {
		out = append(out, v.String())
	}
	for _, v := range s.FDBs {
		out = append(out, v.String())
	}
	for _, v := range s.Routes {
		out = append(out, v.String())
	}
	for _, v := range s.Sysctls {
		out = append(out, v.String())
	}
	return out
}

// add adds a problem; one with the same message as another peer's is reported once, for both.
func (t *Topology) add(p Problem) {
	i := slices.IndexFunc(t.Problems, func(o Problem) bool { return o.Message == p.Message })
	if i < 0 {
		t.Problems = append(t.Problems, p)
		return
	}
	for _, n := range p.Nodes {
		if !slices.Contains(t.Problems[i].Nodes, n) {
			t.Problems[i].Nodes = append(t.Problems[i].Nodes, n)
		}
	}
}
