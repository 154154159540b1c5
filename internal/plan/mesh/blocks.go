// SPDX-License-Identifier: Apache-2.0

package mesh

import (
	"fmt"
	"net/netip"

	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/state"
)

// block plans the route to a block of a peer, or to a single address that it borrows.
func (p *Planner) block(own Backend, peer model.Node, s routedBlock) (BackendState, *Problem) {
	if s.encapsulation.Kind == "" {
		s.encapsulation = p.defaultEncapsulation(own)
	}
	if s.encapsulation.Kind == "" {
		if own.Peer == nil {
			return BackendState{}, nil
		}
		return own.Peer(p, peer, s.cidr)
	}
	if s.encapsulation.Kind == model.EncapsulationNone && own.Name == BackendBGP {
		return BackendState{}, nil
	}
	if s.encapsulation.Kind == model.EncapsulationNone {
		return gateway(p, peer, s.cidr)
	}
	far, u, problem := p.Endpoints(peer, s.cidr)
	switch {
	case problem != nil:
		return BackendState{}, problem
	case s.encapsulation.Mode == model.EncapsulateCrossSubnet && u.IsNeighbor(far):
		return gateway(p, peer, s.cidr)
	case s.encapsulation.Kind == model.EncapsulationVXLAN:
		return p.vxlanBlock(peer, s.cidr, far)
	case s.encapsulation.Kind == model.EncapsulationIPIP:
		return p.ipipBlock(peer, s.cidr, far)
	}
	return BackendState{}, &Problem{
		[]string{peer.Name},
		fmt.Sprintf("%s of node %s: encapsulation %q is not known", s.cidr, peer.Name, s.encapsulation.Kind),
		"none, vxlan or ipip",
	}
}

// defaultEncapsulation returns the encapsulation of a backend that is also a kind of pools.
func (p *Planner) defaultEncapsulation(own Backend) model.Encapsulation {
	how, direct := model.Encapsulation{}, false
	switch own.Name {
	case "vxlan":
		how.Kind, direct = model.EncapsulationVXLAN, p.cfg.VXLAN.DirectRouting
	case "ipip":
		how.Kind, direct = model.EncapsulationIPIP, p.cfg.IPIP.DirectRouting
	}
	if direct {
		how.Mode = model.EncapsulateCrossSubnet
	}
	return how
}

// vxlanBlock routes a block through the tunnel to a peer: the gateway is the peer's own address, or its VTEP's
// link-local one, so that one neighbor entry is enough for all of its blocks.
func (p *Planner) vxlanBlock(peer model.Node, cidr netip.Prefix, far netip.Addr) (BackendState, *Problem) {
	mac, problem := vteps{p}.to(peer, familyOf(cidr.Addr()))
	if problem != nil {
		return BackendState{}, problem
	}
	name, gw := p.vxlanLink(familyOf(cidr.Addr())), far
	if gw.Is6() { // the kernel rejects a gateway that is routed through another link
		gw = linkLocal(mac)
	}
	r := p.Route(cidr)
	r.Gw, r.Link, r.OnLink = gw, name, true
	return BackendState{Host: state.Space{
		Neighs: []state.Neigh{{Link: name, IP: gw, MAC: mac}},
		FDBs:   []state.FDB{{Link: name, MAC: mac, Dst: far}},
		Routes: []state.Route{r},
	}}, nil
}

func (p *Planner) ipipBlock(peer model.Node, cidr netip.Prefix, far netip.Addr) (BackendState, *Problem) {
	if problem := ipipCarries(peer, cidr); problem != nil {
		return BackendState{}, problem
	}
	r := p.Route(cidr)
	r.Gw, r.Link, r.OnLink = far, ipipLink, true
	return BackendState{Host: state.Space{Routes: []state.Route{r}}}, nil
}
