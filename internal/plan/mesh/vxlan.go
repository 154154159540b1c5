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

// VXLAN is the configuration of backend vxlan. Its keys are those of flannel's net-conf.json.
type VXLAN struct {
	// VNI is the VXLAN network identifier; 0 means 1, as in flannel.
	VNI uint32
	// Port is the UDP port; 0 is the kernel's, 8472.
	Port uint16
	// GBP carries the sender's mark as a group policy tag.
	GBP bool
	// Learning: the device learns forwarding entries from received packets.
	Learning bool
	// DirectRouting: peers on the same network are reached without encapsulation.
	DirectRouting bool
	// MTU is the size of the largest encapsulated packet, in bytes; 0 is the underlay's MTU.
	MTU int
}

const maxVNI = 1<<24 - 1

func (v VXLAN) vni() uint32 {
	if v.VNI == 0 {
		return 1
	}
	return v.VNI
}

func (v VXLAN) port() uint16 { return state.VXLANAttrs{Port: v.Port}.UDPPort() }

// check validates the values.
func (v VXLAN) check() error {
	if v.VNI > maxVNI {
		return model.Errorf(model.CodeInvalidConf, "flannel's is 1", "vxlan: VNI %d is not between 1 and %d", v.VNI, maxVNI)
	}
	if least := 68 + VXLANOverhead(4); v.MTU != 0 && (v.MTU < least || v.MTU > 65535) {
		return model.Errorf(model.CodeInvalidConf, "remove it to use the MTU of the interface to the other nodes",
			"vxlan: MTU %d is not between %d and 65535", v.MTU, least)
	}
	return nil
}

// VXLANOverhead returns how many bytes VXLAN over a family adds to a packet: Ethernet, VXLAN, UDP and IP headers.
func VXLANOverhead(family int) int {
	const before = 14 + 8 + 8
	if family == 6 {
		return before + 40
	}
	return before + 20
}

// vxlanRow returns the backend's row.
func vxlanRow() Backend {
	return Backend{
		Name:  "vxlan",
		Check: func(cfg Config) error { return cfg.VXLAN.check() },
		Node:  vxlanNode, Peer: vxlanPeer, Publish: vxlanPublish,
	}
}

// vxlanLink returns the name of the device of a family: flannel's name, so that flannel's device is adopted.
func (p *Planner) vxlanLink(family int) string {
	name := "flannel."
	if family == 6 {
		name = "flannel-v6."
	}
	return name + strconv.FormatUint(uint64(p.cfg.VXLAN.vni()), 10)
}

// vxlanData is what a node publishes, as flannel writes it.
type vxlanData struct {
	VNI     uint32 `json:"VNI"`
	VTEPMAC string `json:"VtepMAC"`
}

func vxlanPublish(p *Planner, family int) string {
	mac, _ := vteps{p}.self(family)
	return vteps{p}.encode(mac)
}

// vxlanNode plans the devices, one for each family.
func vxlanNode(p *Planner) BackendState {
	part := enableForwarding(p)
	part.Untracked = []uint16{p.cfg.VXLAN.port()}
	part.encapsulations = []encapsulation{p.cfg.VXLAN.encapsulation()}
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
		// The source address of packets that the node itself sends to pods.
		if own, ok := p.ownAddr(family); ok {
			s.Addrs = append(s.Addrs, state.Addr{Link: link.Name, Prefix: netip.PrefixFrom(own, own.BitLen()), NoDAD: true})
		}
		s.Sysctls = append(s.Sysctls, state.Sysctl{
			Name: "net/ipv6/conf/" + link.Name + "/accept_ra", Value: "0", IfPresent: true,
		})
		if len(p.pools.all) > 0 {
			// with several pools routing may be asymmetric
			s.Sysctls = append(s.Sysctls, state.Sysctl{Name: "net/ipv4/conf/" + link.Name + "/rp_filter", Value: "2"})
		}
	}
	return part
}

func vxlanDevice(p *Planner, family int, u Underlay, mac state.MAC) state.Link {
	v := p.cfg.VXLAN
	l := state.Link{
		Name: p.vxlanLink(family), Kind: state.VXLAN, MAC: mac, Up: state.On(), Alias: Mark, Recreate: true, Adopt: true,
		VXLAN: &state.VXLANAttrs{VNI: v.vni(), Port: v.Port, Local: u.Address, Learning: &v.Learning, GBP: v.GBP},
	}
	outer := u.MTU
	if v.MTU > 0 {
		outer = v.MTU
	}
	if overhead := VXLANOverhead(family); outer > overhead {
		l.MTU = outer - overhead
	}
	if p.cfg.badChecksums(l.Name) {
		l.TxChecksum = state.Off()
	}
	return l
}

// vxlanPeer routes a peer's prefix through the tunnel: the gateway is the prefix's first address.
func vxlanPeer(p *Planner, peer model.Node, cidr netip.Prefix) (BackendState, *Problem) {
	family := familyOf(cidr.Addr())
	far, u, problem := p.Endpoints(peer, cidr)
	if problem != nil {
		return BackendState{}, problem
	}
	if p.cfg.VXLAN.DirectRouting && u.IsNeighbor(far) {
		return gateway(p, peer, cidr)
	}
	mac, problem := vteps{p}.to(peer, family)
	if problem != nil {
		return BackendState{}, problem
	}
	name, end := p.vxlanLink(family), cidr.Masked().Addr()
	r := p.Route(cidr)
	r.Gw, r.Link, r.OnLink = end, name, true
	return BackendState{Host: state.Space{
		Neighs: []state.Neigh{{Link: name, IP: end, MAC: mac}},
		FDBs:   []state.FDB{{Link: name, MAC: mac, Dst: far}},
		Routes: []state.Route{r},
	}}, nil
}

// encapsulation returns VXLAN's packet format. Other VNIs may share the port.
func (v VXLAN) encapsulation() encapsulation {
	vni := v.vni()
	return encapsulation{
		name: "vxlan",
		port: v.port(),
		acceptForeign: []string{
			fmt.Sprintf("@th,96,8 != %d accept", vni>>16),
			fmt.Sprintf("@th,104,16 != %d accept", vni&0xffff),
		},
		inner: [2]innerHeader{
			{"@th,224,16 2048", "@th,336,32", "@th,368,32"}, {"@th,224,16 34525", "@th,304,128", "@th,432,128"},
		},
	}
}
