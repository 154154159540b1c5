// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"net/netip"

	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/state"
)

// Portmap forwards ports of the node to the container.
type Portmap struct{}

// Type returns "portmap".
func (Portmap) Type() string { return "portmap" }

// Capabilities returns the optional interfaces that the plugin implements.
func (p Portmap) Capabilities() Capabilities { return Capabilities{Readiness: p, Check: p} }

// Keys returns the configuration keys, those of the reference plugin.
func (Portmap) Keys() []string {
	return append(commonKeys(), "backend", "snat", "conditionsV4[]", "conditionsV6[]", "masqAll", "markMasqBit",
		"externalSetMarkChain")
}

// IPAM returns nil: the plugin needs no addresses.
func (Portmap) IPAM(model.PluginConf) ([]byte, error) { return nil, nil }

// Decode parses and validates the configuration: it rejects options that contradict each other, and invalid ports.
func (Portmap) Decode(conf model.PluginConf) (any, error) { return readPortmap(conf) }

// Observe returns the queries for the interface over which the node reaches the container, unless the list plans it,
// and for the programs that the backend needs.
func (Portmap) Observe(in Input) ([]state.Query, error) {
	c, err := decoded(in, readPortmap)
	if err != nil || len(c.mappings) == 0 {
		return nil, err
	}
	var queries []state.Query
	for _, ip := range in.targets() {
		if c.backend == backendIPTables {
			queries = append(queries, program(ip.Addr().Is6()))
		}
		if _, planned := plannedRoute(in.Chain.Fragment.Host, ip.Addr()); !planned && c.SNAT {
			queries = append(queries, routeTo(ip.Addr()))
		}
	}
	if c.SNAT {
		queries = append(queries, pairQueries(in)...)
	}
	return queries, nil
}

func routeTo(a netip.Addr) state.Query { return state.Query{Space: state.Host, RouteTo: a} }

// Plan adds elements to weft's own table, or the reference plugin's rules to iptables. The result is the previous one.
func (Portmap) Plan(in Input) (Step, error) {
	c, err := decoded(in, readPortmap)
	if err != nil {
		return Step{}, err
	}
	prev, err := in.prev()
	if err != nil {
		return Step{}, err
	}
	step := Step{Fragment: state.Fragment{Owner: Owner(in.Request.Key())}, Result: prev}
	if len(c.mappings) == 0 {
		return step, nil
	}
	p := portMap{conf: c, key: in.Request.Key()}
	for _, ip := range in.targets() {
		t := target{net: ip, ports: c.mappingsFor(ip.Addr())}
		if len(t.ports) == 0 && c.backend == backendNFTables {
			continue
		}
		if c.backend == backendIPTables && !in.Answers[program(ip.Addr().Is6())].Found {
			return Step{}, absentProgram(in.Conf, program(ip.Addr().Is6()).Program)
		}
		t.link, t.shared = in.hostLink(ip.Addr())
		p.targets = append(p.targets, t)
	}
	f := &step.Fragment
	if len(p.targets) == 0 {
		return step, nil
	}
	if c.backend == backendIPTables {
		f.Host.IPTables = p.iptables()
	} else {
		f.Host.Tables = []state.Table{p.table()}
	}
	if c.SNAT {
		f.Host.Links = in.bridgeHairpinMode()
	}
	f.Host.Sysctls = p.sysctls()
	f.Effects = p.effects()
	return step, nil
}

func absentProgram(conf model.PluginConf, name string) error {
	return model.Errorf(model.CodeInvalidConf, `install iptables, or use "nftables"`,
		"plugin %s: backend iptables needs the program %s, which is not on this node", conf.Type, name)
}

// targets returns the container's first address of each family on its interface.
func (in Input) targets() []netip.Prefix {
	var v4, v6 []netip.Prefix
	if in.Chain.Prev == nil {
		return nil
	}
	for _, ip := range in.Chain.Prev.IPs {
		if i := ip.Interface; i != nil && *i >= 0 && *i < len(in.Chain.Prev.Interfaces) {
			iface := in.Chain.Prev.Interfaces[*i]
			if iface.Name != in.Request.IfName || iface.Sandbox == "" {
				continue
			}
		}
		if ip.Address.Addr().Is4() {
			v4 = append(v4, ip.Address)
		} else {
			v6 = append(v6, ip.Address)
		}
	}
	return append(v4[:min(len(v4), 1)], v6[:min(len(v6), 1)]...)
}

// hostLink returns the interface over which the node reaches an address, "" if unknown, and whether other addresses are
// reached over it as well.
func (in Input) hostLink(a netip.Addr) (name string, shared bool) {
	if name, planned := plannedRoute(in.Chain.Fragment.Host, a); planned {
		for _, l := range in.Chain.Fragment.Host.Links {
			if l.Name == name {
				return name, l.Shared
			}
		}
		return name, true
	}
	answer := in.Answers[routeTo(a)]
	return answer.Link.Name, answer.Link.Kind != state.Veth
}

// bridgeHairpinMode enables hairpin mode on the container's bridge port. If the bridge passes packets to netfilter
// (br_netfilter), a packet that the container sends to its own port of the node never leaves the bridge.
func (in Input) bridgeHairpinMode() []state.Link {
	e, planned := in.plannedPair()
	if !planned {
		e.host = in.Answers[state.Query{Space: state.Pod, OtherEnd: in.Request.IfName}].Link
	}
	if e.host.Name == "" || e.host.Master == "" {
		return nil
	}
	return []state.Link{{Name: e.host.Name, Port: &state.PortAttrs{Hairpin: state.On()}}}
}

// plannedRoute returns the interface of the longest planned prefix that contains the address.
func plannedRoute(host state.Space, a netip.Addr) (link string, planned bool) {
	best := 0
	try := func(p netip.Prefix, name string) {
		if p.IsValid() && p.Bits() > best && p.Contains(a) {
			best, link = p.Bits(), name
		}
	}
	for _, r := range host.Routes {
		if !r.Absent && r.Link != "" {
			try(r.Dst, r.Link)
		}
	}
	for _, addr := range host.Addrs {
		if !addr.Absent && !addr.NoPrefixRoute {
			try(addr.Prefix, addr.Link)
		}
	}
	return link, link != ""
}
