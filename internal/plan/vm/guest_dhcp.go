// SPDX-License-Identifier: Apache-2.0

package vm

import (
	"net/netip"
	"slices"
	"strings"

	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/state"
)

// setGuestConfig sets the configuration of the DHCP and RA server on a link; only: the server answers this guest only.
func (p *planner) setGuestConfig(g model.GuestConfig, link string, mac state.MAC, only bool) {
	g.Interface, g.PodLink, g.Link, g.LinkMAC = p.nic.Name, p.names.pod, link, mac.String()
	if only {
		g.MAC = p.out.Device.MAC
	}
	p.out.Guest = &g
}

// leases plans the guest's DHCP leases and router advertisements. A lease has the MTU (option 26), the router (3) and,
// for a guest with the pod's routes, classless static routes (121).
type leases struct{ *planner }

// dhcp4Lease returns what every DHCP lease has.
func (p leases) dhcp4Lease(address netip.Prefix, server netip.Addr) *model.GuestDHCP4 {
	search := p.search()
	return &model.GuestDHCP4{
		Address: address, Server: server, MTU: p.mtu, Hostname: p.VM.Hostname, Domain: longest(search),
		DNS: p.nameservers(false), Search: search, Options: p.nic.DHCP,
	}
}

// masqueradeDHCP4 returns the DHCP options of a guest with the masquerade binding: MTU (26), router (3); no classless
// static routes (121).
func (p leases) masqueradeDHCP4(s subnet) *model.GuestDHCP4 {
	out := p.dhcp4Lease(netip.PrefixFrom(s.guest, s.cidr.Bits()), s.gateway)
	out.Router = s.gateway
	return out
}

func (p leases) ipv6(s subnet) *model.GuestDHCP6 {
	return &model.GuestDHCP6{Address: s.guest, DNS: p.nameservers(true), Search: p.search()}
}

func (p leases) advertise(s subnet) *model.GuestRA {
	return &model.GuestRA{Prefix: s.cidr, MTU: p.mtu, DNS: p.nameservers(true), Search: p.search()}
}

// podDHCP4 returns the DHCP options of a guest that has the pod's address and routes: MTU (26), router (3), classless
// static routes (121).
func (p leases) podDHCP4(server netip.Addr) *model.GuestDHCP4 {
	own := p.addr(false)
	l := p.dhcp4Lease(own, server)
	var plain []state.Route
	for _, r := range p.routes {
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
	if single := len(plain) == 1 && l.Router.IsValid() && own.Masked().Contains(l.Router); !single {
		l.Routes = guestRoutes(own, plain)
	}
	return l
}

// guestRoutes returns the routes in an order in which each gateway is reachable before it is used, the default route
// last. A gateway outside the guest's subnet (as of pods with a single address) gets an on-link route.
func guestRoutes(own netip.Prefix, routes []state.Route) []model.GuestRoute {
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

// nameservers returns the pod's DNS servers of one family. If the pod has none at all, the guest gets KubeVirt's
// default.
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

// search returns the guest's DNS search domains: the pod's, and before them the VM's own subdomain, which the kubelet
// omits.
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

// longest returns the most specific domain.
func longest(domains []string) string {
	out := ""
	for _, d := range domains {
		if len(d) > len(out) {
			out = d
		}
	}
	return out
}
