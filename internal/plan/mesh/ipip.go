// SPDX-License-Identifier: Apache-2.0

package mesh

import (
	"fmt"
	"net/netip"

	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/state"
)

// IPIP is how the back end ipip works: IPv4 in IPv4. Its key is that of flannel's net-conf.json.
type IPIP struct {
	// DirectRouting has peers on the same network reached without encapsulation.
	DirectRouting bool
}

const (
	ipipLink     = "flannel.ipip"
	ipipOverhead = 20
)

func ipipRow() Backend { return Backend{Name: "ipip", Node: ipipNode, Peer: ipipPeer} }

// ipipNode plans the device. Its own address tells it from the one that the kernel's module makes by itself (tunl0),
// which may be somebody's.
func ipipNode(p *Planner) Part {
	part := forwarding(p)
	part.encapsulations = []encapsulation{p.cfg.IPIP.encapsulation()}
	u, ok := p.underlay[4]
	if !ok {
		return part
	}
	l := p.device(ipipLink, u.MTU-ipipOverhead, &part)
	l.Kind, l.IPIP = state.IPIP, &state.IPIPAttrs{Local: u.Address}
	part.Host.Links = append(part.Host.Links, l)
	p.own(l.Name, 4, &part)
	return part
}

func ipipCarries(peer model.Node, cidr netip.Prefix) *Problem {
	if familyOf(cidr.Addr()) == 4 {
		return nil
	}
	return &Problem{
		[]string{peer.Name},
		fmt.Sprintf("node %s: its %s %s is not reached, ipip carries IPv4 only", peer.Name, nounOf(peer, cidr), cidr),
		"use vxlan, udp or wireguard for IPv6",
	}
}

// ipipPeer leads a peer's prefix into the device: the route's gateway is the far end.
func ipipPeer(p *Planner, peer model.Node, cidr netip.Prefix) (Part, *Problem) {
	if problem := ipipCarries(peer, cidr); problem != nil {
		return Part{}, problem
	}
	far, u, problem := p.Ends(peer, cidr)
	if problem != nil {
		return Part{}, problem
	}
	if p.cfg.IPIP.DirectRouting && u.Reaches(far) {
		return gateway(p, peer, cidr)
	}
	r := p.Route(cidr)
	r.Gw, r.Link, r.OnLink = far, ipipLink, true
	return Part{Host: state.Space{Routes: []state.Route{r}}}, nil
}

func (IPIP) encapsulation() encapsulation {
	return encapsulation{name: "ipip", inner: [2]inner{{"", "@th,96,32", "@th,128,32"}}}
}
