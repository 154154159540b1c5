// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"net/netip"
	"slices"

	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/state"
)

// DefaultRoute chooses the default routes of a pod with several networks. multinet appends it to a list; no plugin
// binary of that name exists.
type DefaultRoute struct{}

// DefaultRouteType is DefaultRoute's type.
const DefaultRouteType = "weft-default-route"

// DefaultRouteConf is the configuration of DefaultRoute.
type DefaultRouteConf struct {
	// Drop removes the default routes of these families, "4" and "6", from the interface.
	Drop []string `json:"drop,omitempty"`
	// Yield removes the list's default routes of a family in which the pod has one on another interface.
	Yield bool `json:"yield,omitempty"`
	// Via are the gateways of default routes on the interface; several gateways of one family share the load.
	Via []netip.Addr `json:"via,omitempty"`
}

// Type returns "weft-default-route".
func (DefaultRoute) Type() string { return DefaultRouteType }

// Capabilities returns none: the plugin implements no optional interface.
func (DefaultRoute) Capabilities() Capabilities { return Capabilities{} }

// Keys returns the configuration keys.
func (DefaultRoute) Keys() []string { return append(commonKeys(), "drop[]", "yield", "via[]") }

// IPAM returns nil: the plugin needs no addresses.
func (DefaultRoute) IPAM(model.PluginConf) ([]byte, error) { return nil, nil }

// Decode parses the configuration.
func (DefaultRoute) Decode(conf model.PluginConf) (any, error) { return readDefaultRoute(conf) }

func readDefaultRoute(conf model.PluginConf) (c DefaultRouteConf, err error) {
	err = decode(conf, &c)
	return c, err
}

// Observe returns the queries for the interface's routes, unless the list creates the interface, and for other default
// routes if the list plans one or if a foreign plugin may have added one.
func (DefaultRoute) Observe(in Input) ([]state.Query, error) {
	c, err := decoded(in, readDefaultRoute)
	if err != nil {
		return nil, err
	}
	var queries []state.Query
	name := in.Request.IfName
	made := !in.opens(name)
	if (len(c.Drop) > 0 || c.Yield) && made {
		queries = append(queries, routesQuery(name))
	}
	for _, family := range []string{"4", "6"} {
		if c.Yield && (made || in.plansDefault(family)) {
			queries = append(queries, otherDefault(family, name))
		}
	}
	return queries, nil
}

// otherDefault returns the query for a default route on another interface. Of several routes the kernel lists the
// newest first.
func otherDefault(family, name string) state.Query {
	return state.Query{Space: state.Pod, DefaultLink: family, Except: name}
}

// plansDefault reports whether the list plans a default route of the family.
func (in Input) plansDefault(family string) bool {
	return slices.ContainsFunc(in.Chain.Pending.Pod.Routes, func(r state.Route) bool {
		return moves(r) && isDefault(r.Dst, family)
	})
}

func isDefault(dst netip.Prefix, family string) bool {
	return dst.Bits() == 0 && dst.Addr().Is4() == (family == "4")
}

// Plan removes default routes from the plan and from the kernel, and adds the configured ones.
func (DefaultRoute) Plan(in Input) (Step, error) {
	c, err := decoded(in, readDefaultRoute)
	if err != nil {
		return Step{}, err
	}
	prev, err := in.prev()
	if err != nil {
		return Step{}, err
	}
	owner, name := Owner(in.Request.Key()), in.Request.IfName
	drop := slices.Clone(c.Drop)
	for _, family := range []string{"4", "6"} {
		if c.Yield && in.Answers[otherDefault(family, name)].Found {
			drop = append(drop, family)
		}
	}
	dropped := func(dst netip.Prefix) bool {
		return slices.ContainsFunc(drop, func(family string) bool { return isDefault(dst, family) })
	}
	pending := in.Chain.Pending
	pending.Pod.Routes = slices.DeleteFunc(slices.Clone(pending.Pod.Routes), func(r state.Route) bool {
		return r.Link == name && moves(r) && dropped(r.Dst)
	})
	step := Step{
		Fragment: state.Fragment{Owner: owner},
		Restore:  state.Fragment{Owner: owner},
		Pending:  &pending,
		Result:   prev,
	}
	for _, r := range in.Answers[routesQuery(name)].Routes {
		if moves(r) && dropped(r.Dst) {
			step.Restore.Pod.Routes = append(step.Restore.Pod.Routes, r)
			r.Absent, r.Table, r.Scope, r.Protocol = true, 0, nil, 0
			step.Fragment.Pod.Routes = append(step.Fragment.Pod.Routes, r)
		}
	}
	step.Result.Routes = slices.DeleteFunc(slices.Clone(prev.Routes), func(r model.Route) bool {
		return r.Table == nil && dropped(r.Dst)
	})
	if err := via(&step, c.Via, name); err != nil {
		return Step{}, err
	}
	if !slices.Equal(step.Result.Routes, prev.Routes) {
		step.Result.PluginRoutes = append([]model.Route{}, prev.Routes...)
	}
	return step, nil
}

// via adds the configured default routes.
func via(step *Step, gateways []netip.Addr, name string) error {
	for _, is4 := range []bool{true, false} {
		var own []netip.Addr
		for _, gw := range gateways {
			if gw = gw.Unmap(); gw.Is4() == is4 {
				if !reached(step.Result, name, gw) {
					return model.Errorf(model.CodeInvalidConf, "name a gateway in the subnet of an address of the network",
						"default-route %s: no address of interface %s is in its subnet", gw, name)
				}
				own = append(own, gw)
			}
		}
		if len(own) == 0 {
			continue
		}
		all := netip.PrefixFrom(netip.IPv6Unspecified(), 0)
		if is4 {
			all = netip.PrefixFrom(netip.IPv4Unspecified(), 0)
		}
		route := state.Route{Dst: all, Gw: own[0], Link: name}
		for _, gw := range own[1:] {
			route.NextHops = append(route.NextHops, state.NextHop{Gw: gw})
		}
		step.Fragment.Pod.Routes = append(step.Fragment.Pod.Routes, route)
		for _, gw := range own {
			step.Result.Routes = append(step.Result.Routes, model.Route{Dst: all, GW: gw})
		}
	}
	return nil
}

// reached reports whether a gateway is a neighbor of the interface.
func reached(r model.Result, name string, gw netip.Addr) bool {
	return gw.IsLinkLocalUnicast() ||
		slices.ContainsFunc(addressesOf(r, name), func(ip model.IP) bool { return ip.Address.Contains(gw) })
}
