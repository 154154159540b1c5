// SPDX-License-Identifier: Apache-2.0

package mesh

import (
	"net/netip"

	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/state"
)

// UDP is the configuration of backend udp: IP packets in UDP datagrams, through a process in user space. Its key is
// that of flannel's net-conf.json.
type UDP struct {
	// Port is the UDP port; 0 is flannel's, 8285.
	Port uint16
}

const (
	udpName        = "udp"
	defaultUDPPort = 8285
)

func (u UDP) port() uint16 {
	if u.Port == 0 {
		return defaultUDPPort
	}
	return u.Port
}

// OptionAddress is the device's own address, in the options of a tunnel that sends ICMP errors.
const OptionAddress = "address"

func udpRow() Backend { return Backend{Name: udpName, Node: udpNode, Peer: udpPeer} }

// udpLink returns the name of the device of a family. The name for IPv4 is flannel's.
func udpLink(family int) string {
	if family == 6 {
		return "flannel0-v6"
	}
	return "flannel0"
}

// udpOverhead returns how many bytes a datagram of a family adds to a packet.
func udpOverhead(family int) int {
	if family == 6 {
		return 40 + 8
	}
	return 20 + 8
}

// udpNode plans the devices and tunnels, one for each family.
func udpNode(p *Planner) BackendState {
	part := enableForwarding(p)
	part.Untracked = []uint16{p.cfg.UDP.port()}
	part.encapsulations = []encapsulation{p.cfg.UDP.encapsulation()}
	for _, family := range families() {
		u, ok := p.underlay[family]
		if !ok {
			continue
		}
		l := p.device(udpLink(family), u.MTU-udpOverhead(family), &part)
		l.Kind, l.Tun = state.Tap, &state.TunAttrs{IP: true}
		part.Host.Links = append(part.Host.Links, l)
		tunnel := Tunnel{Backend: udpName, Link: l.Name, Local: netip.AddrPortFrom(u.Address, p.cfg.UDP.port()), MTU: l.MTU}
		if cidr, ok := p.PodCIDR(family); ok {
			tunnel.Options = map[string]string{OptionAddress: cidr.Addr().String()}
		}
		part.Tunnels = append(part.Tunnels, tunnel)
		p.assignAddr(l.Name, family, &part)
	}
	return part
}

// device returns the common settings of the mesh's devices without Ethernet headers.
func (p *Planner) device(name string, mtu int, part *BackendState) state.Link {
	l := state.Link{Name: name, Up: state.On(), Alias: Mark, Recreate: true, Adopt: true}
	if mtu > 0 {
		l.MTU = mtu
		if part.MTU == 0 || mtu < part.MTU {
			part.MTU = mtu
		}
	}
	part.Host.Sysctls = append(part.Host.Sysctls,
		// Routing may be asymmetric: a peer's packets may arrive on another device.
		state.Sysctl{Name: "net/ipv4/conf/" + name + "/rp_filter", Value: "2"},
		state.Sysctl{Name: "net/ipv6/conf/" + name + "/accept_ra", Value: "0", IfPresent: true})
	return l
}

// assignAddr assigns ownAddr to a device: it is the source of packets that the node itself sends to pods.
func (p *Planner) assignAddr(link string, family int, part *BackendState) {
	if own, ok := p.ownAddr(family); ok {
		part.Host.Addrs = append(part.Host.Addrs, state.Addr{
			Link: link, Prefix: netip.PrefixFrom(own, own.BitLen()), NoDAD: true,
		})
	}
}

// udpPeer routes a peer's prefix through the device, and adds the peer to the tunnel.
func udpPeer(p *Planner, peer model.Node, cidr netip.Prefix) (BackendState, *Problem) {
	family := familyOf(cidr.Addr())
	far, _, problem := p.Endpoints(peer, cidr)
	if problem != nil {
		return BackendState{}, problem
	}
	r := p.Route(cidr)
	r.Link = udpLink(family)
	return BackendState{
		Host: state.Space{Routes: []state.Route{r}},
		Tunnels: []Tunnel{{Backend: udpName, Link: r.Link, Peers: []TunnelPeer{{
			Node: peer.Name, CIDR: cidr, Endpoint: netip.AddrPortFrom(far, p.cfg.UDP.port()),
		}}}},
	}, nil
}

func (u UDP) encapsulation() encapsulation {
	return encapsulation{
		name: "udp", port: u.port(),
		inner: [2]innerHeader{
			{"@th,64,8 & 240 == 64", "@th,160,32", "@th,192,32"}, {"@th,64,8 & 240 == 96", "@th,128,128", "@th,256,128"},
		},
	}
}
