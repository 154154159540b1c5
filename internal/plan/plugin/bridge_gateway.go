// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"net/netip"
	"slices"

	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/state"
)

// gateways completes the result of IPAM and returns the addresses of the bridge. If the bridge is the gateway, an
// address without a gateway uses the first address of its subnet. isDefaultGateway adds a default route for each family
// that has none.
func (c bridgeConf) gateways(a *addressed) []netip.Prefix {
	result := *a
	*a = addressed{routes: slices.Clone(result.routes), late: result.late}
	var out []netip.Prefix
	for _, ip := range result.ips {
		if !ip.Gateway.IsValid() && c.IsGateway {
			ip.Gateway = ip.Address.Masked().Addr().Next()
		}
		a.add(ip)
		if !c.IsGateway {
			continue
		}
		gw := netip.PrefixFrom(ip.Gateway, ip.Address.Bits())
		if !slices.Contains(out, gw) {
			out = append(out, gw)
		}
		if c.IsDefaultGateway {
			addDefault(a, ip.Gateway)
		}
	}
	return out
}

// addDefault adds a default route unless the family has one. A default route without a gateway is completed; the
// reference plugin would plan a second route and fail.
func addDefault(a *addressed, gw netip.Addr) {
	dst := netip.PrefixFrom(netip.IPv4Unspecified(), 0)
	if gw.Is6() {
		dst = netip.PrefixFrom(netip.IPv6Unspecified(), 0)
	}
	i := slices.IndexFunc(a.routes, func(r model.Route) bool { return r.Dst == dst })
	if i < 0 {
		a.routes = append(a.routes, model.Route{Dst: dst, GW: gw})
	} else if !a.routes[i].GW.IsValid() {
		a.routes[i].GW = gw
	}
}

// gatewayAddrs returns the gateway's addresses on the bridge. A conflicting address is an error, or is removed with
// forceAddress: for IPv4 any other address, for IPv6 one whose subnet overlaps.
func (c bridgeConf) gatewayAddrs(in Input, gateways []netip.Prefix) ([]state.Addr, error) {
	var gone, out []state.Addr
	name := c.gatewayLink()
	have := in.Answers[state.Query{Space: state.Host, Link: name}]
	for _, gw := range gateways {
		for _, old := range have.Addrs {
			if old.Prefix == gw || slices.Contains(gateways, old.Prefix) || !conflicts(gw, old.Prefix) {
				continue
			}
			if !c.ForceAddress {
				return nil, model.Errorf(model.CodeInvalidConf,
					"set forceAddress to replace it, or give the network another bridge",
					"plugin bridge: bridge %q has the address %s and not the gateway's %s", name, old.Prefix, gw)
			}
			if a := (state.Addr{Link: name, Prefix: old.Prefix, Absent: true, Shared: true}); !slices.Contains(gone, a) {
				gone = append(gone, a)
			}
		}
		out = append(out, state.Addr{Link: name, Prefix: gw, NoDAD: gw.Addr().Is6(), Shared: true})
	}
	return append(gone, out...), nil
}

func conflicts(gw, old netip.Prefix) bool {
	if gw.Addr().Is4() != old.Addr().Is4() {
		return false
	}
	return gw.Addr().Is4() || gw.Overlaps(old)
}
