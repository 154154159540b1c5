// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"net/netip"
	"slices"

	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/state"
)

// addressed is the result of IPAM by family.
type addressed struct {
	ips    []model.IP
	routes []model.Route
	v4, v6 bool       // there is an address of the family
	late   bool       // the interface is created before the addresses are known
	gw4    netip.Addr // the first gateway of the family
	gw6    netip.Addr
}

// fromIPAM validates an IPAM result.
func fromIPAM(conf model.PluginConf, result *model.Result) (addressed, error) {
	var a addressed
	if result == nil || len(result.IPs) == 0 {
		return a, model.Errorf(model.CodeInvalidConf, "configure a range or an address",
			"plugin %s: ipam returned no address", conf.Type)
	}
	a.routes = result.Routes
	for i, r := range a.routes {
		if key, value, most := r.OutOfRange(); key != "" {
			return a, model.Errorf(model.CodeInvalidConf, "have the ipam plugin leave it out for the kernel's default",
				"plugin %s: ipam: routes[%d].%s %d is not between 0 and %d", conf.Type, i, key, value, most)
		}
	}
	for _, ip := range result.IPs {
		if ip.Gateway.IsValid() && ip.Gateway.Is4() != ip.Address.Addr().Is4() {
			return a, model.Errorf(model.CodeInvalidConf, "",
				"plugin %s: ipam: address %s and gateway %s are of different families",
				conf.Type, ip.Address, ip.Gateway)
		}
		if ip.Gateway == ip.Address.Addr() {
			return a, model.Errorf(model.CodeInvalidConf, "give the container another address, or leave the gateway out",
				"plugin %s: ipam: address %s is its own gateway", conf.Type, ip.Address)
		}
		a.add(ip)
	}
	return a, nil
}

// addresses returns the result of IPAM, which is empty while only the interface is planned.
func (in Input) addresses() (addressed, error) {
	if in.IPAMTiming == LinkOnly {
		return addressed{late: true}, nil
	}
	a, err := fromIPAM(in.Conf, in.IPAM)
	a.late = in.IPAMTiming != IPAMFirst
	return a, err
}

// known reports whether any address is known.
func (a *addressed) known() bool { return len(a.ips) > 0 }

func (a *addressed) add(ip model.IP) {
	a.ips = append(a.ips, ip)
	if ip.Address.Addr().Is4() {
		a.v4 = true
		if !a.gw4.IsValid() {
			a.gw4 = ip.Gateway
		}
		return
	}
	a.v6 = true
	if !a.gw6.IsValid() {
		a.gw6 = ip.Gateway
	}
}

// podRoutes returns the result's routes over an interface. A route without a gateway uses the family's first gateway,
// unless its scope shows that the destination is on-link (dhcp: option 121; there the gateway is 0.0.0.0). Duplicates
// are dropped.
func (a *addressed) podRoutes(link string) []state.Route {
	var out []state.Route
	for _, r := range a.routes {
		gw := r.GW
		onLink := gw.IsValid() && gw.IsUnspecified() || r.Scope != nil && *r.Scope >= int(state.ScopeLink)
		if onLink && gw.IsUnspecified() {
			gw = netip.Addr{}
		}
		if !gw.IsValid() && !onLink {
			gw = a.gw6
			if r.Dst.Addr().Is4() {
				gw = a.gw4
			}
		}
		route := state.Route{
			Dst: r.Dst.Masked(), Gw: gw, Link: link, Metric: uint32(r.Priority), MTU: r.MTU, AdvMSS: r.AdvMSS, Coexists: true, //nolint:gosec // fromIPAM
		}
		if r.Table != nil {
			route.Table = uint32(*r.Table) //nolint:gosec // fromIPAM
		}
		if r.Scope != nil {
			scope := state.Scope(*r.Scope) //nolint:gosec // fromIPAM
			route.Scope = &scope
		}
		same := func(o state.Route) bool {
			return o.Dst == route.Dst && o.Gw == route.Gw && o.Metric == route.Metric && o.Table == route.Table
		}
		if !slices.ContainsFunc(out, same) {
			out = append(out, route)
		}
	}
	return out
}

// ipv6 adds the IPv6 settings of the container's end and, with both, of the node's end. Both are silent if no address
// is IPv6. Until the addresses are known they have link-local addresses, which DHCPv6 needs.
func (a *addressed) ipv6(f *state.Fragment, p pair, both bool) {
	f.Host.Sysctls = append(f.Host.Sysctls, noAddrGen(p.host.Name))
	f.Pod.Sysctls = append(f.Pod.Sysctls, noAddrGen(p.pod.Name))
	if !a.v6 && !a.late {
		return
	}
	f.Pod.Addrs = append(f.Pod.Addrs, linkLocal(p.pod.Name, p.pod.MAC))
	if both {
		f.Host.Addrs = append(f.Host.Addrs, hostLinkLocal(p.host.Name, p.host.MAC))
	}
}

// keepAddrs adds the sysctl with which an interface keeps its IPv6 addresses while it is down, as it does for IPv4.
func (a *addressed) keepAddrs(f *state.Fragment, link string) {
	if a.v6 {
		f.Pod.Sysctls = append(f.Pod.Sysctls, keepAddr(link))
	}
}

func keepAddr(link string) state.Sysctl {
	return state.Sysctl{Name: "net/ipv6/conf/" + link + "/keep_addr_on_down", Value: "1", IfPresent: true}
}

// full returns the prefix of a single address.
func full(a netip.Addr) netip.Prefix { return netip.PrefixFrom(a, a.BitLen()) }
