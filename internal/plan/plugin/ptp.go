// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"slices"

	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/state"
)

// PTP joins the container to the node by a veth pair and routes between them: no bridge, no shared wire.
type PTP struct{}

type ptpConf struct {
	IPMasq        bool    `json:"ipMasq"`
	IPMasqBackend *string `json:"ipMasqBackend"`
	MTU           int     `json:"mtu"`
}

func (c ptpConf) masq() masqConf { return masqConf{c.IPMasq, c.IPMasqBackend} }

// Type is "ptp".
func (PTP) Type() string { return "ptp" }

// Capabilities says what it can beside planning.
func (p PTP) Capabilities() Capabilities { return Capabilities{MakesInterface: true, Readiness: p} }

// Keys are the options of the reference plugin.
func (PTP) Keys() []string { return interfaceKeys("ipMasq", "ipMasqBackend", "mtu") }

// IPAM is the ipam section.
func (PTP) IPAM(conf model.PluginConf) ([]byte, error) { return ipamSection(conf) }

// Decode wants an ipam section.
func (PTP) Decode(conf model.PluginConf) (any, error) { return readPTP(conf) }

func readPTP(conf model.PluginConf) (ptpConf, error) {
	var c ptpConf
	if err := decode(conf, &c); err != nil {
		return c, err
	}
	if err := checkMTU(conf, c.MTU); err != nil {
		return c, err
	}
	if err := c.masq().check(conf); err != nil {
		return c, err
	}
	section, err := ipamSection(conf)
	if err != nil {
		return c, err
	}
	if section == nil {
		return c, model.Faultf(model.CodeInvalidConf, `add "ipam": {"type": …}`, "plugin ptp: ipam.type is missing")
	}
	return c, readDNS(conf).err
}

// Observe asks whether the interface's name is free.
func (PTP) Observe(in Input) ([]state.Query, error) {
	c, err := decoded(in, readPTP)
	if err != nil {
		return nil, err
	}
	return append([]state.Query{freeName(in.Request)}, c.masq().queries()...), checkArgs(in.Request)
}

// ReadyQueries asks for what masquerading needs.
func (PTP) ReadyQueries(in Input) []state.Query {
	c, err := decoded(in, readPTP)
	if err != nil {
		return nil
	}
	return c.masq().queries()
}

// Ready tells whether masquerading could work.
func (PTP) Ready(in Input) error {
	c, err := decoded(in, readPTP)
	if err != nil {
		return err
	}
	return c.masq().ready(in)
}

// Plan makes the pair. The node's end has the gateways as single addresses and a route to each of the container's; the
// container reaches its subnet only through the gateway, so all its traffic passes the node.
func (PTP) Plan(in Input) (Step, error) {
	c, err := decoded(in, readPTP)
	if err != nil {
		return Step{}, err
	}
	if err := checkFreeName(in); err != nil {
		return Step{}, err
	}
	a, err := in.addresses()
	if err != nil {
		return Step{}, err
	}
	for i, ip := range a.ips {
		if !ip.Gateway.IsValid() {
			return Step{}, model.Faultf(model.CodeInvalidConf, "ptp routes through it: give ipam a gateway",
				"plugin ptp: ipam: ips[%d] %s has no gateway", i, ip.Address)
		}
	}
	ends := newPair(in.Request, c.MTU, state.MAC{})
	f := state.Fragment{Owner: Owner(in.Request.Key())}
	f.Host.Links, f.Pod.Links = []state.Link{ends.host}, []state.Link{ends.pod}
	f.Host.Sysctls = forwarding(a.v4, a.v6)
	a.ipv6(&f, ends, true)
	for _, ip := range a.ips {
		routed(&f, ends, ip)
	}
	f.Pod.Routes = append(f.Pod.Routes, a.neighborRoutes(ends.pod.Name)...)
	a.keepAddrs(&f, ends.pod.Name)
	if err := c.masq().plan(in, &f, a); err != nil {
		return Step{}, err
	}
	result := model.Result{Interfaces: ends.interfaces(in.Request), Routes: a.routes, DNS: in.IPAM.DNS}
	one := 1
	for _, ip := range a.ips {
		ip.Interface = &one
		result.IPs = append(result.IPs, ip)
	}
	if err := in.overrideDNS(&result); err != nil {
		return Step{}, err
	}
	return Step{Fragment: f, Result: result}, nil
}

// neighborRoutes are podRoutes where the subnets are not on the link: a gateway of them that is not the node itself is
// asked for on the link all the same, as with the reference plugin, which adds these routes while they still are.
func (a *addressed) neighborRoutes(link string) []state.Route {
	routes := a.podRoutes(link)
	for i, r := range routes {
		for _, ip := range a.ips {
			if r.Gw.IsValid() && ip.Address.Contains(r.Gw) {
				routes[i].OnLink = true
			}
		}
		if slices.ContainsFunc(a.ips, func(ip model.IP) bool { return ip.Gateway == r.Gw }) {
			routes[i].OnLink = false
		}
	}
	return routes
}

// routed joins one address: both ends know each other as single addresses.
func routed(f *state.Fragment, ends pair, ip model.IP) {
	addr := ip.Address.Addr()
	v6 := addr.Is6()
	gateway := state.Addr{Link: ends.host.Name, Prefix: full(ip.Gateway), NoDAD: v6, NoPrefixRoute: v6}
	if !slices.Contains(f.Host.Addrs, gateway) {
		f.Host.Addrs = append(f.Host.Addrs, gateway)
	}
	f.Host.Routes = append(f.Host.Routes, state.Route{Dst: full(addr), Link: ends.host.Name})
	pod := ends.pod.Name
	f.Pod.Addrs = append(f.Pod.Addrs, state.Addr{Link: pod, Prefix: ip.Address, NoDAD: v6, NoPrefixRoute: true})
	addRoute := func(r state.Route) {
		same := func(o state.Route) bool { return o.Dst == r.Dst }
		if !slices.ContainsFunc(f.Pod.Routes, same) {
			f.Pod.Routes = append(f.Pod.Routes, r)
		}
	}
	addRoute(state.Route{Dst: full(ip.Gateway), Link: pod, Src: addr, Coexists: true})
	if !ip.Address.IsSingleIP() {
		addRoute(state.Route{Dst: ip.Address.Masked(), Gw: ip.Gateway, Link: pod, Src: addr, Coexists: true})
	}
}
