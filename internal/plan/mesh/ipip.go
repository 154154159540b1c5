// SPDX-License-Identifier: Apache-2.0

package mesh

import (
	"fmt"
	"net/netip"

	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/state"
)

// IPIP is the configuration of backend ipip: IPv4 in IPv4. Its key is that of flannel's net-conf.json.
type IPIP struct {
	// DirectRouting: peers on the same network are reached without encapsulation.
	DirectRouting bool
}

const (
	ipipLink     = "flannel.ipip"
	ipipOverhead = 20
)

func ipipRow() Backend { return Backend{Name: "ipip", Node: ipipNode, Peer: ipipPeer} }

// ipipNode plans the device. Its local address distinguishes it from the one that the kernel module creates (tunl0),
// which another program may use.
func ipipNode(p *Planner) BackendState {
	part := enableForwarding(p)
	part.encapsulations = []encapsulation{p.cfg.IPIP.encapsulation()}
	u, ok := p.underlay[4]
	if !ok {
		return part
	}
	l := p.device(ipipLink, u.MTU-ipipOverhead, &part)
	l.Kind, l.IPIP = state.IPIP, &state.IPIPAttrs{Local: u.Address}
	part.Host.Links = append(part.Host.Links, l)
	p.assignAddr(l.Name, 4, &part)
	return part
}

func ipipCarries(peer model.Node, cidr netip.Prefix) *Problem {
	if familyOf(cidr.Addr()) == 4 {
		return nil
	}
	return &Problem{
		[]string{peer.Name},
		fmt.Sprintf("node %s: its %s %s is not reached: ipip carries IPv4 only", peer.Name, nounOf(peer, cidr), cidr),
		"use vxlan, udp or wireguard for IPv6",
	}
}

// ipipPeer routes a peer's prefix through the device: the gateway is the peer's address.
func ipipPeer(p *Planner, peer model.Node, cidr netip.Prefix) (BackendState, *Problem) {
	if problem := ipipCarries(peer, cidr); problem != nil {
		return BackendState{}, problem
	}
	far, u, problem := p.Endpoints(peer, cidr)
	if problem != nil {
		return BackendState{}, problem
	}
	if p.cfg.IPIP.DirectRouting && u.IsNeighbor(far) {
		return gateway(p, peer, cidr)
	}
	r := p.Route(cidr)
	r.Gw, r.Link, r.OnLink = far, ipipLink, true
	return BackendState{Host: state.Space{Routes: []state.Route{r}}}, nil
}

func (IPIP) encapsulation() encapsulation {
	return encapsulation{name: "ipip", inner: [2]innerHeader{{"", "@th,96,32", "@th,128,32"}}}
}
