// SPDX-License-Identifier: Apache-2.0

package mesh

import (
	"fmt"
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
	// GBP carries the sender's mark as a group policy tag.
	GBP bool
	// Learning has the device note who sent what from where.
	Learning bool
	// DirectRouting has peers on the same network reached without encapsulation.
	DirectRouting bool
	// MTU is the largest encapsulated packet, in bytes; 0 is what the underlay takes.
	MTU int
}

const mostVNI = 1<<24 - 1

func (v Vxlan) vni() uint32 {
	if v.VNI == 0 {
		return 1
	}
	return v.VNI
}

func (v Vxlan) port() uint16 { return state.VxlanAttrs{Port: v.Port}.UDPPort() }

// check refuses what no device can have.
func (v Vxlan) check() error {
	if v.VNI > mostVNI {
		return model.Faultf(model.CodeInvalidConf, "flannel's is 1", "vxlan: VNI %d is not between 1 and %d", v.VNI, mostVNI)
	}
	if least := 68 + VxlanOverhead(4); v.MTU != 0 && (v.MTU < least || v.MTU > 65535) {
		return model.Faultf(model.CodeInvalidConf, "leave it out, and it is that of the interface to the other nodes",
			"vxlan: MTU %d is not between %d and 65535", v.MTU, least)
	}
	return nil
}

// VxlanOverhead is what VXLAN over a family adds to a packet: Ethernet, VXLAN, UDP and IP headers, in bytes.
func VxlanOverhead(family int) int {
	const before = 14 + 8 + 8
	if family == 6 {
		return before + 40
	}
	return before + 20
}

// vxlanRow is the back end's row.
func vxlanRow() Backend {
	return Backend{
		Name:  "vxlan",
		Check: func(cfg Config) error { return cfg.Vxlan.check() },
		Node:  vxlanNode, Peer: vxlanPeer, Publish: vxlanPublish,
	}
}

// vxlanLink is the name of the device of a family, as flannel names it, so that its node is taken over without a new
// one.
func (p *Planner) vxlanLink(family int) string {
	name := "flannel."
	if family == 6 {
		name = "flannel-v6."
	}
	return name + strconv.FormatUint(uint64(p.cfg.Vxlan.vni()), 10)
}

// vxlanData is what a node publishes, as flannel writes it.
type vxlanData struct {
	VNI     uint32 `json:"VNI"`
	VtepMAC string `json:"VtepMAC"`
}

func vxlanPublish(p *Planner, family int) string {
	mac, _ := vteps{p}.self(family)
	return vteps{p}.word(mac)
}

// vxlanNode plans the devices, one a family.
func vxlanNode(p *Planner) Part {
	part := forwarding(p)
	part.Untracked = []uint16{p.cfg.Vxlan.port()}
	part.encapsulations = []encapsulation{p.cfg.Vxlan.encapsulation()}
	for _, family := range families() {
		u, ok := p.underlay[family]
		if !ok {
			continue
		}
		mac, problems := vteps{p}.self(family)
		part.Problems = append(part.Problems, problems...)
		link := vxlanDevice(p, family, u, mac)
		if link.MTU > 0 && (part.MTU == 0 || link.MTU < part.MTU) {
			part.MTU = link.MTU
		}
		s := &part.Host
		s.Links = append(s.Links, link)
		// What the node itself sends to pods comes from here, and answers find back.
		if own, ok := p.ownAddr(family); ok {
			s.Addrs = append(s.Addrs, state.Addr{Link: link.Name, Prefix: netip.PrefixFrom(own, own.BitLen()), NoDAD: true})
		}
		s.Sysctls = append(s.Sysctls, state.Sysctl{
			Name: "net/ipv6/conf/" + link.Name + "/accept_ra", Value: "0", IfPresent: true,
		})
		if len(p.pools.all) > 0 {
			// with several pools a peer may be reached through another device than its packets come from
			s.Sysctls = append(s.Sysctls, state.Sysctl{Name: "net/ipv4/conf/" + link.Name + "/rp_filter", Value: "2"})
		}
	}
	return part
}

func vxlanDevice(p *Planner, family int, u Underlay, mac state.MAC) state.Link {
	v := p.cfg.Vxlan
	l := state.Link{
		Name: p.vxlanLink(family), Kind: state.Vxlan, MAC: mac, Up: state.On(), Alias: Mark, Remade: true, Adopted: true,
		Vxlan: &state.VxlanAttrs{VNI: v.vni(), Port: v.Port, Local: u.Address, Learning: &v.Learning, GBP: v.GBP},
	}
	outer := u.MTU
	if v.MTU > 0 {
		outer = v.MTU
	}
	if overhead := VxlanOverhead(family); outer > overhead {
		l.MTU = outer - overhead
	}
	if p.cfg.badChecksums(l.Name) {
		l.TxChecksum = state.Off()
	}
	return l
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
	mac, problem := vteps{p}.to(peer, family)
	if problem != nil {
		return Part{}, problem
	}
	name, end := p.vxlanLink(family), cidr.Masked().Addr()
	r := p.Route(cidr)
	r.Gw, r.Link, r.OnLink = end, name, true
	return Part{Host: state.Space{
		Neighs: []state.Neigh{{Link: name, IP: end, MAC: mac}},
		FDBs:   []state.FDB{{Link: name, MAC: mac, Dst: far}},
		Routes: []state.Route{r},
	}}, nil
}

// encapsulation is that of VXLAN: other networks may share the port.
func (v Vxlan) encapsulation() encapsulation {
	vni := v.vni()
	return encapsulation{
		name: "vxlan", port: v.port(),
		foreign: []string{fmt.Sprintf("@th,96,8 != %d accept", vni>>16), fmt.Sprintf("@th,104,16 != %d accept", vni&0xffff)},
		inner: [2]inner{
			{"@th,224,16 2048", "@th,336,32", "@th,368,32"}, {"@th,224,16 34525", "@th,304,128", "@th,432,128"},
		},
	}
}
