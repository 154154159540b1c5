// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"slices"

	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/state"
)

// PTP connects the container to the node by a veth pair and routes between them: no bridge, no shared broadcast domain.
type PTP struct{}

type ptpConf struct {
	IPMasq        bool    `json:"ipMasq"`
	IPMasqBackend *string `json:"ipMasqBackend"`
	MTU           int     `json:"mtu"`
}

func (c ptpConf) masq() masqConf { return masqConf{c.IPMasq, c.IPMasqBackend} }

// Type returns "ptp".
func (PTP) Type() string { return "ptp" }

// Capabilities returns the optional interfaces that the plugin implements.
func (p PTP) Capabilities() Capabilities { return Capabilities{MakesInterface: true, Readiness: p} }

// Keys returns the configuration keys, those of the reference plugin.
func (PTP) Keys() []string { return interfaceKeys("ipMasq", "ipMasqBackend", "mtu") }

// IPAM returns the ipam section.
func (PTP) IPAM(conf model.PluginConf) ([]byte, error) { return ipamSection(conf) }

// Decode parses and validates the configuration, which must have an ipam section.
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
		return c, model.Errorf(model.CodeInvalidConf, `add "ipam": {"type": …}`, "plugin ptp: ipam.type is missing")
	}
	return c, readDNS(conf).err
}

// Observe returns the query for the interface's name, which must be free.
func (PTP) Observe(in Input) ([]state.Query, error) {
	c, err := decoded(in, readPTP)
	if err != nil {
		return nil, err
	}
	return append([]state.Query{freeName(in.Request)}, c.masq().queries()...), checkArgs(in.Request)
}

// ReadyQueries returns the queries for the programs that masquerading needs.
func (PTP) ReadyQueries(in Input) []state.Query {
	c, err := decoded(in, readPTP)
	if err != nil {
		return nil
	}
	return c.masq().queries()
}

// Ready returns an error if masquerading cannot work.
func (PTP) Ready(in Input) error {
	c, err := decoded(in, readPTP)
	if err != nil {
		return err
	}
	return c.masq().ready(in)
}

// Plan creates the pair. The node's end has the gateways as single addresses and a route to each address of the
// container; the container reaches its subnet only through the gateway, so all its traffic passes the node.
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
			return Step{}, model.Errorf(model.CodeInvalidConf, "ptp routes through it: configure a gateway in ipam",
				"plugin ptp: ipam: ips[%d] %s has no gateway", i, ip.Address)
		}
	}
	veth := newPair(in.Request, c.MTU, state.MAC{})
	f := state.Fragment{Owner: Owner(in.Request.Key())}
	f.Host.Links, f.Pod.Links = []state.Link{veth.host}, []state.Link{veth.pod}
	f.Host.Sysctls = forwarding(a.v4, a.v6)
	a.ipv6(&f, veth, true)
	for _, ip := range a.ips {
		routed(&f, veth, ip)
	}
	f.Pod.Routes = append(f.Pod.Routes, a.neighborRoutes(veth.pod.Name)...)
	a.keepAddrs(&f, veth.pod.Name)
	if err := c.masq().plan(in, &f, a); err != nil {
		return Step{}, err
	}
	result := model.Result{Interfaces: veth.interfaces(in.Request), Routes: a.routes, DNS: in.IPAM.DNS}
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

// neighborRoutes returns podRoutes for an interface without on-link subnets. A gateway in a subnet that is not the node
// itself is marked on-link, as with the reference plugin, which adds these routes while the subnets are still on-link.
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

// routed adds the addresses and routes of both ends for one address.
func routed(f *state.Fragment, veth pair, ip model.IP) {
	addr := ip.Address.Addr()
	v6 := addr.Is6()
	gateway := state.Addr{Link: veth.host.Name, Prefix: full(ip.Gateway), NoDAD: v6, NoPrefixRoute: v6}
	if !slices.Contains(f.Host.Addrs, gateway) {
		f.Host.Addrs = append(f.Host.Addrs, gateway)
	}
	f.Host.Routes = append(f.Host.Routes, state.Route{Dst: full(addr), Link: veth.host.Name})
	pod := veth.pod.Name
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
