// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"net/netip"
	"slices"

	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/state"
)

// Firewall lets the container's packets through the node's firewall, and keeps apart what an ingress policy wants kept
// apart.
type Firewall struct{}

// Type is "firewall".
func (Firewall) Type() string { return "firewall" }

// Capabilities says what it can beside planning.
func (f Firewall) Capabilities() Capabilities { return Capabilities{Readiness: f, Check: f, Trace: f} }

// Keys are the options of the reference plugin.
func (Firewall) Keys() []string {
	return append(commonKeys(), "backend", "iptablesAdminChainName", "firewalldZone", "ingressPolicy")
}

// IPAM is nothing: it asks for no addresses.
func (Firewall) IPAM(model.PluginConf) ([]byte, error) { return nil, nil }

// Decode refuses words that mean nothing.
func (Firewall) Decode(conf model.PluginConf) (any, error) { return readFirewall(conf) }

func firewalld() state.Query { return state.Query{Space: state.Host, Firewalld: true} }

func dropped(family string) state.Query { return state.Query{Space: state.Host, Dropped: family} }

// Observe asks, where no backend is named, what the node's firewall is; for a policy, what the bridge and the ends are.
func (Firewall) Observe(in Input) ([]state.Query, error) {
	c, err := decoded(in, readFirewall)
	if err != nil {
		return nil, err
	}
	var queries []state.Query
	if c.Backend == "" {
		queries = append(queries, firewalld(), dropped("4"), dropped("6"), dropped(state.LegacyDropped+"4"),
			dropped(state.LegacyDropped+"6"))
	}
	if c.IngressPolicy == policyOpen {
		return queries, nil
	}
	if name := firstInterface(in); name != "" {
		if _, planned := plannedKind(in, name); !planned {
			queries = append(queries, state.Query{Space: state.Host, Link: name})
		}
	}
	if c.IngressPolicy == policyIsolated {
		queries = append(queries, endsQueries(in)...)
	}
	return queries, nil
}

// Plan adds elements to weft's own tables, the rules of the reference plugin to iptables, or addresses to a zone of
// firewalld.
func (Firewall) Plan(in Input) (Step, error) {
	c, err := decoded(in, readFirewall)
	if err != nil {
		return Step{}, err
	}
	prev, err := in.prev()
	if err != nil {
		return Step{}, err
	}
	step := Step{Fragment: state.Fragment{Owner: Owner(in.Request.Key())}, Result: prev}
	p := protection{conf: c, mark: cut(Mark(in.Request.Key()), mostComment)}
	for _, ip := range prev.IPs {
		p.addrs = append(p.addrs, ip.Address.Addr())
	}
	if len(p.addrs) == 0 {
		return step, nil
	}
	if c.IngressPolicy != policyOpen {
		if err := p.readBridge(in); err != nil {
			return Step{}, err
		}
	}
	host := &step.Fragment.Host
	switch c.backend(in.Answers, p.addrs) {
	case backendIPTables:
		host.IPTables = p.iptablesWhereDropped(in.Answers)
		step.Doubts = c.unread(in.Answers, p.addrs)
	case backendFirewalld:
		host.Sources = p.sources()
		if c.IngressPolicy != policyOpen { // what weft's table drops, no zone lets through
			host.Tables = p.tables()
		}
	default:
		host.Tables = p.tables()
		step.Doubts = c.unread(in.Answers, p.addrs)
	}
	return step, nil
}

// protection is what is planned for one container.
type protection struct {
	conf  firewallConf
	mark  string
	addrs []netip.Addr
	// bridge is the link that the container's packets come from, for a policy; alone tells that it is the container's own.
	bridge string
	alone  bool
	// port is the container's port on the bridge, where it has one and is isolated.
	port string
}

func (p protection) families() (v4, v6 bool) {
	v4 = slices.ContainsFunc(p.addrs, netip.Addr.Is4)
	return v4, slices.ContainsFunc(p.addrs, netip.Addr.Is6)
}

// readBridge finds what a policy is about. The first interface of the result is the bridge, or the node's end of a
// routed pair.
func (p *protection) readBridge(in Input) error {
	p.bridge = firstInterface(in)
	kind, planned := plannedKind(in, p.bridge)
	if answer := in.Answers[state.Query{Space: state.Host, Link: p.bridge}]; !planned && answer.Found {
		kind, planned = answer.Link.Kind, true
	}
	if p.bridge == "" || !planned {
		return model.Faultf(model.CodeInvalidConf, "chain it to bridge or ptp, or leave ingressPolicy out",
			"plugin firewall: ingressPolicy %q: the first interface of prevResult is no link of the node", p.conf.IngressPolicy)
	}
	p.alone = kind != state.Bridge
	if p.conf.IngressPolicy != policyIsolated || p.alone {
		return nil
	}
	e, err := in.ends()
	p.port = e.host.Name
	return err
}

// firstInterface is the first interface of the result so far, if it is the node's.
func firstInterface(in Input) string {
	if in.Chain.Prev == nil || len(in.Chain.Prev.Interfaces) == 0 || in.Chain.Prev.Interfaces[0].Sandbox != "" {
		return ""
	}
	return in.Chain.Prev.Interfaces[0].Name
}

func plannedKind(in Input, name string) (state.Kind, bool) {
	for _, l := range in.Chain.Fragment.Host.Links {
		if l.Name == name {
			return l.Kind, true
		}
	}
	return "", false
}
