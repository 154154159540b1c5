// SPDX-License-Identifier: Apache-2.0

package vm

import (
	"net/netip"
	"slices"
	"strings"

	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/state"
)

// tell has a guest told something on a link; only tells that nobody else there is answered.
func (p *planner) tell(g model.Guest, link string, mac state.MAC, only bool) {
	g.Interface, g.PodLink, g.Link, g.LinkMAC = p.nic.Name, p.names.pod, link, mac.String()
	if only {
		g.MAC = p.out.Device.MAC
	}
	p.out.Guest = &g
}

// leases are what the guest is told by DHCP and router advertisements.
type leases struct{ *planner }

// lease is what every lease of DHCP has.
func (p leases) lease(address netip.Prefix, server netip.Addr) *model.GuestDHCP4 {
	search := p.search()
	return &model.GuestDHCP4{
		Address: address, Server: server, MTU: p.mtu, Hostname: p.VM.Hostname, Domain: longest(search),
		DNS: p.nameservers(false), Search: search, Chosen: p.nic.DHCP,
	}
}

// ipv4 is the lease of a guest whose addresses are translated.
func (p leases) ipv4(s subnet) *model.GuestDHCP4 {
	out := p.lease(netip.PrefixFrom(s.guest, s.cidr.Bits()), s.gateway)
	out.Router = s.gateway
	return out
}

func (p leases) ipv6(s subnet) *model.GuestDHCP6 {
	return &model.GuestDHCP6{Address: s.guest, DNS: p.nameservers(true), Search: p.search()}
}

func (p leases) advertise(s subnet) *model.GuestRA {
	return &model.GuestRA{Prefix: s.cidr, MTU: p.mtu, DNS: p.nameservers(true), Search: p.search()}
}

// ofPod is the lease of a guest that has the pod's address: the pod's routes are its own.
func (p leases) ofPod(server netip.Addr) *model.GuestDHCP4 {
	own := p.addr(false)
	l := p.lease(own, server)
	var plain []state.Route
	for _, r := range p.ways {
		const main, unicast = 254, 1 // RT_TABLE_MAIN, RTN_UNICAST
		if r.Dst.Addr().Is4() && r.Table%main == 0 && r.Type <= unicast && !r.Gw.Is6() && r.Dst != own.Masked() {
			plain = append(plain, r)
		}
	}
	for _, r := range plain {
		if r.Dst.Bits() == 0 && r.Gw.IsValid() {
			l.Router = r.Gw
			break
		}
	}
	if alone := len(plain) == 1 && l.Router.IsValid() && own.Masked().Contains(l.Router); !alone {
		l.Routes = ways(own, plain)
	}
	return l
}

// ways are routes in an order in which each gateway is known before it is needed, the default route last. A gateway
// outside the guest's subnet (pods of one address have it) is on the wire: the guest is told so.
func ways(own netip.Prefix, routes []state.Route) []model.GuestRoute {
	var direct, far []model.GuestRoute
	known := func(gw netip.Addr) bool {
		return own.Masked().Contains(gw) ||
			slices.ContainsFunc(direct, func(r model.GuestRoute) bool { return r.Dst.Contains(gw) })
	}
	for _, r := range routes {
		if !r.Gw.IsValid() {
			direct = append(direct, model.GuestRoute{Dst: r.Dst})
		}
	}
	for _, r := range routes {
		if !r.Gw.IsValid() {
			continue
		}
		if !known(r.Gw) {
			direct = append(direct, model.GuestRoute{Dst: netip.PrefixFrom(r.Gw, r.Gw.BitLen())})
		}
		far = append(far, model.GuestRoute{Dst: r.Dst, GW: r.Gw})
	}
	out := slices.Concat(direct, far)
	slices.SortStableFunc(out, func(a, b model.GuestRoute) int {
		isDefault := func(r model.GuestRoute) int {
			if r.Dst.Bits() == 0 {
				return 1
			}
			return 0
		}
		return isDefault(a) - isDefault(b)
	})
	return out
}

// nameservers are the pod's of one family. Where the pod has none at all the guest gets the one that KubeVirt gives.
func (p leases) nameservers(v6 bool) []netip.Addr {
	var out []netip.Addr
	any := false
	for _, s := range p.DNS.Nameservers {
		ip, err := netip.ParseAddr(s)
		any = any || err == nil
		if err == nil && ip.WithZone("") == ip && ip.Is6() == v6 {
			out = append(out, ip)
		}
	}
	if !any && !v6 {
		out = append(out, netip.AddrFrom4([4]byte{8, 8, 8, 8}))
	}
	return out
}

// search are the domains in which the guest looks for short names: the pod's, and before them the machine's own
// subdomain, which the kubelet leaves out.
func (p leases) search() []string {
	var out []string
	for _, d := range p.DNS.Search {
		out = append(out, strings.ToLower(strings.TrimSuffix(d, ".")))
	}
	if len(out) == 0 {
		out = []string{"cluster.local"}
	}
	if p.VM.Subdomain == "" {
		return out
	}
	var services []string
	for _, d := range out {
		if strings.Contains(d, ".svc.") {
			services = append(services, d)
		}
	}
	if d := longest(services); d != "" && !strings.HasPrefix(d, p.VM.Subdomain+".") {
		return append([]string{p.VM.Subdomain + "." + d}, out...)
	}
	return out
}

// longest is the most exact domain.
func longest(domains []string) string {
	out := ""
	for _, d := range domains {
		if len(d) > len(out) {
			out = d
		}
	}
	return out
}
