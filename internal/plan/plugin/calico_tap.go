// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"net/netip"
	"slices"

	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/state"
)

// hostTap is what a configuration says of a tap on the node in the place of a pair: a hypervisor opens it there, or is
// given it opened. What the node knows of a pod's end it knows of the guest's.
type hostTap struct {
	Owner *uint32 `json:"owner"`
}

// placed is a planned pair, or the tap that is wanted in its place.
func (c calicoConf) placed(step Step, in Input, ends pair, a addressed) (Step, error) {
	if c.HostTap == nil {
		return step, nil
	}
	return step, c.HostTap.onNode(&step, in, ends, a, c.Queues)
}

// onNode makes of a planned pair a tap on the node and, in the pod, a link that is down: it tells who looks there the
// name, the hardware address and the addresses that the guest has.
func (t hostTap) onNode(step *Step, in Input, ends pair, a addressed, queues int) error {
	f := &step.Fragment
	if len(f.Pod.Qdiscs) > 0 {
		return model.Faultf(model.CodeUnsupportedField, "limit what the pod gets, or leave host_tap out",
			"plugin calico: what a guest sends through a tap on the node cannot be limited")
	}
	tap, standIn := &f.Host.Links[0], &f.Pod.Links[0]
	tap.Kind, tap.Peer, tap.Queues, tap.Replaces = state.Tap, nil, 0, false
	tap.Tun = &state.TunAttrs{MultiQueue: queues > 1, Owner: t.Owner, Group: t.Owner}
	standIn.Kind, standIn.Peer, standIn.Queues, standIn.Up, standIn.Tun = state.Tap, nil, 0, state.Off(), &state.TunAttrs{}
	f.Pod.Neighs, f.Pod.Routes, f.Pod.Rules = nil, nil, nil
	f.Pod.Addrs = slices.DeleteFunc(f.Pod.Addrs, func(addr state.Addr) bool {
		return addr.Prefix.Addr().IsLinkLocalUnicast()
	})
	g := model.Guest{
		Interface: in.Request.IfName, PodLink: in.Request.IfName, Link: tap.Name, LinkMAC: tap.MAC.String(),
		MAC: ends.pod.MAC.String(), OnNode: true,
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
	if g.DHCP4 != nil { // the gateway answers by itself, and hears who has no address yet
		f.Host.Addrs = append(f.Host.Addrs, state.Addr{Link: tap.Name, Prefix: full(routedGateway4())})
		allow(f.Host.Tables, in.Request.Key(), tap.Name, ends.pod.MAC)
	}
	if g.DHCP4 != nil || g.DHCP6 != nil {
		step.Guests = append(step.Guests, g)
	}
	return nil
}

// allow lets a guest ask for its address.
func allow(tables []state.Table, k model.AttachmentKey, link string, mac state.MAC) {
	for i, t := range tables {
		if t.Name != SourceTable || t.Family != "inet" {
			continue
		}
		for j, s := range t.Sets {
			if s.Name == "own4" {
				nobody := state.Element{
					Key: []string{link, mac.String(), netip.IPv4Unspecified().String()}, Comment: elementMark(k),
				}
				tables[i].Sets[j].Elements = append(slices.Clone(s.Elements), nobody)
			}
		}
	}
}

// nameservers are those of a result.
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
