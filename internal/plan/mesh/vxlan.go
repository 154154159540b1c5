// SPDX-License-Identifier: Apache-2.0

package mesh

import (
	"net/netip"
	"strconv"

	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/state"
)

// Mark is the ifalias of the mesh's own links.
const Mark = "weft:mesh"

// Vxlan is how the back end vxlan works. Its keys are those of flannel's net-conf.json.
type Vxlan struct {
	// VNI is the number of the network; 0 is 1, as with flannel.
	VNI uint32
	// Port is the UDP port; 0 is the kernel's, 8472.
	Port uint16
	// DirectRouting has peers on the same network reached without encapsulation.
	DirectRouting bool
}

func (v Vxlan) vni() uint32 {
	if v.VNI == 0 {
		return 1
	}
	return v.VNI
}

// VxlanOverhead is what VXLAN over a family adds to a packet: Ethernet, VXLAN, UDP and IP headers, in bytes.
func VxlanOverhead(family int) int {
	const before = 14 + 8 + 8
	if family == 6 {
		return before + 40
	}
	return before + 20
}

// vxlanLink is the name of the device of a family, as flannel names it, so that its node is taken over without a new one.
func (p *Planner) vxlanLink(family int) string {
	name := "flannel."
	if family == 6 {
		name = "flannel-v6."
	}
	return name + strconv.FormatUint(uint64(p.cfg.Vxlan.vni()), 10)
}

// vtepMAC is the address of a node's end of the tunnels. It comes from the node's name, so that nobody has to tell it.
func vtepMAC(node string, family int) state.MAC {
	return state.SeedMAC("vtep/" + strconv.Itoa(family) + "/" + node)
}

// vxlanNode plans the devices, one a family.
func vxlanNode(p *Planner) Part {
	part := forwarding(p)
	s := &part.Host
	for _, family := range families() {
		u, ok := p.underlay[family]
		if !ok {
			continue
		}
		name, overhead := p.vxlanLink(family), VxlanOverhead(family)
		l := state.Link{
			Name: name, Kind: state.Vxlan, MAC: vtepMAC(p.self.Name, family), Up: state.On(), Alias: Mark, Remade: true,
			Vxlan: &state.VxlanAttrs{VNI: p.cfg.Vxlan.vni(), Port: p.cfg.Vxlan.Port, Local: u.Address, Learning: state.Off()},
		}
		if u.MTU > overhead {
			l.MTU = u.MTU - overhead
			if part.MTU == 0 || l.MTU < part.MTU {
				part.MTU = l.MTU
			}
		}
		s.Links = append(s.Links, l)
		// What the node itself sends to pods comes from here, and answers find back.
		if cidr, ok := p.PodCIDR(family); ok {
			own := cidr.Addr()
			s.Addrs = append(s.Addrs, state.Addr{Link: name, Prefix: netip.PrefixFrom(own, own.BitLen()), NoDAD: true})
		}
		s.Sysctls = append(s.Sysctls, state.Sysctl{Name: "net/ipv6/conf/" + name + "/accept_ra", Value: "0", IfPresent: true})
	}
	return part
}

// vxlanPeer leads a peer's prefix into the tunnel to it: the prefix' first address is the peer's end.
func vxlanPeer(p *Planner, peer model.Node, cidr netip.Prefix) (Part, *Problem) {
	family := familyOf(cidr.Addr())
	far, u, problem := p.Ends(peer, cidr)
	if problem != nil {
		return Part{}, problem
	}
	if p.cfg.Vxlan.DirectRouting && u.Reaches(far) {
		return gateway(p, peer, cidr)
	}
	name, mac, end := p.vxlanLink(family), vtepMAC(peer.Name, family), cidr.Masked().Addr()
	r := p.Route(cidr)
	r.Gw, r.Link, r.OnLink = end, name, true
	return Part{Host: state.Space{
		Neighs: []state.Neigh{{Link: name, IP: end, MAC: mac}},
		FDBs:   []state.FDB{{Link: name, MAC: mac, Dst: far}},
		Routes: []state.Route{r},
	}}, nil
}
