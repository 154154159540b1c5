// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"net/netip"
	"slices"

	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/state"
)

// Firewall accepts the container's packets in the node's firewall, and enforces an ingress policy between bridges or
// containers.
type Firewall struct{}

// Type returns "firewall".
func (Firewall) Type() string { return "firewall" }

// Capabilities returns the optional interfaces that the plugin implements.
func (f Firewall) Capabilities() Capabilities { return Capabilities{Readiness: f, Check: f, Trace: f} }

// Keys returns the configuration keys, those of the reference plugin.
func (Firewall) Keys() []string {
	return append(commonKeys(), "backend", "iptablesAdminChainName", "firewalldZone", "ingressPolicy")
}

// IPAM returns nil: the plugin needs no addresses.
func (Firewall) IPAM(model.PluginConf) ([]byte, error) { return nil, nil }

// Decode parses and validates the configuration: it rejects unknown values.
func (Firewall) Decode(conf model.PluginConf) (any, error) { return readFirewall(conf) }

func firewalld() state.Query { return state.Query{Space: state.Host, Firewalld: true} }

func dropped(family string) state.Query { return state.Query{Space: state.Host, ForwardDrop: family} }

// Observe returns the queries for the node's firewall if no backend is configured and, for an ingress policy, for the
// bridge and the pair.
func (Firewall) Observe(in Input) ([]state.Query, error) {
	c, err := decoded(in, readFirewall)
	if err != nil {
		return nil, err
	}
	var queries []state.Query
	if c.Backend == "" {
		queries = append(queries, firewalld(), dropped("4"), dropped("6"), dropped(state.LegacyForwardDrop+"4"),
			dropped(state.LegacyForwardDrop+"6"))
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
		queries = append(queries, pairQueries(in)...)
	}
	return queries, nil
}

// Plan adds elements to weft's own tables, the reference plugin's rules to iptables, or addresses to a firewalld zone.
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
	p := firewallPlan{conf: c, mark: cut(Mark(in.Request.Key()), maxComment)}
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
		step.Warnings = c.unreadableLegacy(in.Answers, p.addrs)
	case backendFirewalld:
		host.Sources = p.sources()
		if c.IngressPolicy != policyOpen { // what weft's table drops, no zone accepts
			host.Tables = p.tables()
		}
	default:
		host.Tables = p.tables()
		step.Warnings = c.unreadableLegacy(in.Answers, p.addrs)
	}
	return step, nil
}

// firewallPlan is what is planned for one container.
type firewallPlan struct {
	conf  firewallConf
	mark  string
	addrs []netip.Addr
	// bridge is the interface that the container's packets come from, for a policy; ownLink is set if no other container
	// uses it.
	bridge  string
	ownLink bool
	// port is the container's port on the bridge, if it has one and is isolated.
	port string
}

func (p firewallPlan) families() (v4, v6 bool) {
	v4 = slices.ContainsFunc(p.addrs, netip.Addr.Is4)
	return v4, slices.ContainsFunc(p.addrs, netip.Addr.Is6)
}

// readBridge finds the interface that the policy applies to. The first interface of the result is the bridge, or the
// node's end of a routed pair.
func (p *firewallPlan) readBridge(in Input) error {
	p.bridge = firstInterface(in)
	kind, planned := plannedKind(in, p.bridge)
	if answer := in.Answers[state.Query{Space: state.Host, Link: p.bridge}]; !planned && answer.Found {
		kind, planned = answer.Link.Kind, true
	}
	if p.bridge == "" || !planned {
		return model.Errorf(model.CodeInvalidConf, "chain it to bridge or ptp, or leave ingressPolicy out",
			"plugin firewall: ingressPolicy %q: the first interface of prevResult is not an interface of the node", p.conf.IngressPolicy)
	}
	p.ownLink = kind != state.Bridge
	if p.conf.IngressPolicy != policyIsolated || p.ownLink {
		return nil
	}
	e, err := in.pair()
	p.port = e.host.Name
	return err
}

// firstInterface returns the first interface of the result so far, if it is on the node.
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
