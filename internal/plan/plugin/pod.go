// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"net/netip"
	"slices"

	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/state"
)

// addressed is what IPAM gave, sorted out.
type addressed struct {
	ips    []model.IP
	routes []model.Route
	v4, v6 bool       // whether there is an address of the family
	late   bool       // the interface is made before the addresses are known
	gw4    netip.Addr // the first gateway of the family
	gw6    netip.Addr
}

// fromIPAM reads an IPAM result. An address without the promise behind it cannot be planned.
func fromIPAM(conf model.PluginConf, result *model.Result) (addressed, error) {
	var a addressed
	if result == nil || len(result.IPs) == 0 {
		return a, model.Faultf(model.CodeInvalidConf, "give it a range or an address",
			"plugin %s: ipam gave no address", conf.Type)
	}
	a.routes = result.Routes
	for i, r := range a.routes {
		if key, value, most := r.Unfit(); key != "" {
			return a, model.Faultf(model.CodeInvalidConf, "have the ipam plugin leave it out for the kernel's own",
				"plugin %s: ipam: routes[%d].%s %d is not between 0 and %d", conf.Type, i, key, value, most)
		}
	}
	for _, ip := range result.IPs {
		if ip.Gateway.IsValid() && ip.Gateway.Is4() != ip.Address.Addr().Is4() {
			return a, model.Faultf(model.CodeInvalidConf, "",
				"plugin %s: ipam: address %s and gateway %s are of different families",
				conf.Type, ip.Address, ip.Gateway)
		}
		if ip.Gateway == ip.Address.Addr() {
			return a, model.Faultf(model.CodeInvalidConf, "give the container another address, or leave the gateway out",
				"plugin %s: ipam: address %s is its own gateway", conf.Type, ip.Address)
		}
		a.add(ip)
	}
	return a, nil
}

// addresses reads the answer to the plugin's IPAM section, which is empty while the interface alone is planned.
func (in Input) addresses() (addressed, error) {
	if in.Late == LinkAlone {
		return addressed{late: true}, nil
	}
	a, err := fromIPAM(in.Conf, in.IPAM)
	a.late = in.Late != Early
	return a, err
}

// known tells whether there is any address.
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

// podRoutes are the result's routes over a link: one without a gateway goes to the family's first one, unless its scope
// says that the destination is on the wire itself (dhcp: option 121; there the gateway is 0.0.0.0). A route that is
// there already is planned once.
func (a *addressed) podRoutes(link string) []state.Route {
	var out []state.Route
	for _, r := range a.routes {
		gw := r.GW
		onWire := gw.IsValid() && gw.IsUnspecified() || r.Scope != nil && *r.Scope >= int(state.ScopeLink)
		if onWire && gw.IsUnspecified() {
			gw = netip.Addr{}
		}
		if !gw.IsValid() && !onWire {
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

// ipv6 says how the container's end and, with both, the node's end treat IPv6: silent when no address is of that
// family. While nobody knows yet they have link-local addresses: DHCPv6 asks from one.
func (a *addressed) ipv6(f *state.Fragment, p pair, both bool) {
	f.Host.Sysctls = append(f.Host.Sysctls, quiet(p.host.Name))
	f.Pod.Sysctls = append(f.Pod.Sysctls, quiet(p.pod.Name))
	if !a.v6 && !a.late {
		return
	}
	f.Pod.Addrs = append(f.Pod.Addrs, linkLocal(p.pod.Name, p.pod.MAC))
	if both {
		f.Host.Addrs = append(f.Host.Addrs, hostLinkLocal(p.host.Name, p.host.MAC))
	}
}

// keepAddrs has a link keep its IPv6 addresses while it is down, as it does those of IPv4.
func (a *addressed) keepAddrs(f *state.Fragment, link string) {
	if a.v6 {
		f.Pod.Sysctls = append(f.Pod.Sysctls, keepAddr(link))
	}
}

func keepAddr(link string) state.Sysctl {
	return state.Sysctl{Name: "net/ipv6/conf/" + link + "/keep_addr_on_down", Value: "1", IfPresent: true}
}

// full is the prefix of one address.
func full(a netip.Addr) netip.Prefix { return netip.PrefixFrom(a, a.BitLen()) }
