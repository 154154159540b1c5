// SPDX-License-Identifier: Apache-2.0

package mesh

import (
	"fmt"
	"net/netip"

	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/state"
)

// span plans the way to a block of a peer, or to a single address that it holds.
func (p *Planner) span(own Backend, peer model.Node, s span) (Part, *Problem) {
	if s.how.Kind == "" {
		s.how = p.usual(own)
	}
	if s.how.Kind == "" {
		if own.Peer == nil {
			return Part{}, nil
		}
		return own.Peer(p, peer, s.cidr)
	}
	if s.how.Kind == model.EncapsulationNone {
		return gateway(p, peer, s.cidr)
	}
	far, u, problem := p.Ends(peer, s.cidr)
	switch {
	case problem != nil:
		return Part{}, problem
	case s.how.When == model.EncapsulateCrossSubnet && u.Reaches(far):
		return gateway(p, peer, s.cidr)
	case s.how.Kind == model.EncapsulationVXLAN:
		return p.vxlanSpan(peer, s.cidr, far)
	case s.how.Kind == model.EncapsulationIPIP:
		return p.ipipSpan(peer, s.cidr, far)
	}
	return Part{}, &Problem{
		[]string{peer.Name},
		fmt.Sprintf("%s of node %s: encapsulation %q is not known", s.cidr, peer.Name, s.how.Kind),
		"none, vxlan or ipip",
	}
}

// usual is how a back end does it that is one of the kinds of pools, too.
func (p *Planner) usual(own Backend) model.Encapsulation {
	how, direct := model.Encapsulation{}, false
	switch own.Name {
	case "vxlan":
		how.Kind, direct = model.EncapsulationVXLAN, p.cfg.Vxlan.DirectRouting
	case "ipip":
		how.Kind, direct = model.EncapsulationIPIP, p.cfg.IPIP.DirectRouting
	}
	if direct {
		how.When = model.EncapsulateCrossSubnet
	}
	return how
}

// vxlanSpan leads a block into the tunnel to a peer: the peer's own address is the gateway, or its end's link-local
// one, so that one entry does for all of its blocks.
func (p *Planner) vxlanSpan(peer model.Node, cidr netip.Prefix, far netip.Addr) (Part, *Problem) {
	mac, problem := vteps{p}.to(peer, familyOf(cidr.Addr()))
	if problem != nil {
		return Part{}, problem
	}
	name, gw := p.vxlanLink(familyOf(cidr.Addr())), far
	if gw.Is6() { // the kernel refuses a gateway that another link leads to
		gw = linkLocal(mac)
	}
	r := p.Route(cidr)
	r.Gw, r.Link, r.OnLink = gw, name, true
	return Part{Host: state.Space{
		Neighs: []state.Neigh{{Link: name, IP: gw, MAC: mac}},
		FDBs:   []state.FDB{{Link: name, MAC: mac, Dst: far}},
		Routes: []state.Route{r},
	}}, nil
}

func (p *Planner) ipipSpan(peer model.Node, cidr netip.Prefix, far netip.Addr) (Part, *Problem) {
	if problem := ipipCarries(peer, cidr); problem != nil {
		return Part{}, problem
	}
	r := p.Route(cidr)
	r.Gw, r.Link, r.OnLink = far, ipipLink, true
	return Part{Host: state.Space{Routes: []state.Route{r}}}, nil
}
