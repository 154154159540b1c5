// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"net/netip"
	"slices"

	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/state"
)

// hostTap configures a tap on the node instead of a veth pair. A hypervisor opens it there, or receives its file
// descriptor. Routing and anti-spoofing are those of the node's end of a pod's veth pair.
type hostTap struct {
	Owner *uint32 `json:"owner"`
}

// withHostTap replaces the planned pair by a tap on the node if host_tap is configured.
func (c calicoConf) withHostTap(step Step, in Input, veth pair, a addressed) (Step, error) {
	if c.HostTap == nil {
		return step, nil
	}
	return step, c.HostTap.apply(&step, in, veth, a, c.Queues)
}

// apply replaces the planned pair by a tap on the node. In the pod it plans an interface that is down and has the
// guest's name, MAC address and addresses, for programs that inspect the pod's namespace.
func (t hostTap) apply(step *Step, in Input, veth pair, a addressed, queues int) error {
	f := &step.Fragment
	if len(f.Pod.Qdiscs) > 0 {
		return model.Errorf(model.CodeUnsupportedField, "limit ingress only, or leave host_tap out",
			"plugin calico: the egress bandwidth of a guest cannot be limited at a tap on the node")
	}
	tap, standIn := &f.Host.Links[0], &f.Pod.Links[0]
	tap.Kind, tap.Peer, tap.Queues, tap.ReplaceUnmarked = state.Tap, nil, 0, false
	tap.Tun = &state.TunAttrs{MultiQueue: queues > 1, Owner: t.Owner, Group: t.Owner}
	standIn.Kind, standIn.Peer, standIn.Queues, standIn.Up, standIn.Tun = state.Tap, nil, 0, state.Off(), &state.TunAttrs{}
	f.Pod.Neighs, f.Pod.Routes, f.Pod.Rules = nil, nil, nil
	f.Pod.Addrs = slices.DeleteFunc(f.Pod.Addrs, func(addr state.Addr) bool {
		return addr.Prefix.Addr().IsLinkLocalUnicast()
	})
	g := model.GuestConfig{
		Interface: in.Request.IfName, PodLink: in.Request.IfName, Link: tap.Name, LinkMAC: tap.MAC.String(),
		MAC: veth.pod.MAC.String(), OnNode: true,
	}
	dns := nameservers(step.Result.DNS)
	for _, ip := range a.ips {
		own := ip.Address.Addr()
		if own.Is6() {
			g.DHCP6 = &model.GuestDHCP6{Address: own, DNS: dns.of(true), Search: step.Result.DNS.Search}
			g.RA = &model.GuestRA{MTU: tap.MTU, DNS: dns.of(true), Search: step.Result.DNS.Search}
			continue
		}
		gw := routedGateway4()
		g.DHCP4 = &model.GuestDHCP4{
			Address: full(own), Server: gw, Router: gw, MTU: tap.MTU, Hostname: hostname(in.Request), DNS: dns.of(false),
			Search: step.Result.DNS.Search, Domain: step.Result.DNS.Domain,
			Routes: []model.GuestRoute{{Dst: full(gw)}, {Dst: netip.PrefixFrom(netip.IPv4Unspecified(), 0), GW: gw}},
		}
	}
	if g.DHCP4 != nil { // the DHCP server needs the gateway's address, and packets from guests without an address
		f.Host.Addrs = append(f.Host.Addrs, state.Addr{Link: tap.Name, Prefix: full(routedGateway4())})
		allowUnaddressed(f.Host.Tables, in.Request.Key(), tap.Name, veth.pod.MAC)
	}
	if g.DHCP4 != nil || g.DHCP6 != nil {
		step.Guests = append(step.Guests, g)
	}
	return nil
}

// allowUnaddressed permits DHCP requests of a guest that has no address yet.
func allowUnaddressed(tables []state.Table, k model.AttachmentKey, link string, mac state.MAC) {
	for i, t := range tables {
		if t.Name != SourceTable || t.Family != "inet" {
			continue
		}
		for j, s := range t.Sets {
			if s.Name == "own4" {
				unset := state.Element{
					Key: []string{link, mac.String(), netip.IPv4Unspecified().String()}, Comment: elementMark(k),
				}
				tables[i].Sets[j].Elements = append(slices.Clone(s.Elements), unset)
			}
		}
	}
}

// nameservers are the DNS servers of a result.
type nameservers model.DNS

func (n nameservers) of(v6 bool) []netip.Addr {
	var out []netip.Addr
	for _, s := range n.Nameservers {
		if ip, err := netip.ParseAddr(s); err == nil && ip.Is6() == v6 {
			out = append(out, ip)
		}
	}
	return out
}
