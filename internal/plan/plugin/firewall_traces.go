// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"strings"

	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/state"
)

// forwardChain returns the query for the reference plugin's chain.
func forwardChain(family string) state.Query {
	return state.Query{Space: state.Host, Chain: family + " filter CNI-FORWARD"}
}

// Trace returns the queries for the places where the reference plugin may have left rules of the container.
func (Firewall) Trace(in Input) []state.Query {
	c := tracedFirewall(in)
	if in.Chain.Prev == nil {
		return nil
	}
	var queries []state.Query
	if c.Backend == "" || c.Backend == backendFirewalld {
		queries = append(queries, firewalld())
	}
	if c.Backend != backendFirewalld {
		queries = append(queries, forwardChain("ip"), forwardChain("ip6"))
	}
	return queries
}

// tracedFirewall returns the configuration, or the defaults if it is invalid: both programs use these chains.
func tracedFirewall(in Input) firewallConf {
	c, err := decoded(in, readFirewall)
	if err != nil {
		c, _ = readFirewall(model.PluginConf{Type: in.Conf.Type, Raw: []byte("{}")})
	}
	return c
}

// Traces returns the container's rules in the reference plugin's chain and its addresses in a zone. Only the addresses
// show that they are the container's. Rules of ingress policies stay, as with the reference plugin.
func (Firewall) Traces(in Input) Step {
	c := tracedFirewall(in)
	if in.Chain.Prev == nil {
		return Step{}
	}
	p := firewallPlan{conf: c}
	for _, ip := range in.Chain.Prev.IPs {
		p.addrs = append(p.addrs, ip.Address.Addr())
	}
	step := Step{Fragment: state.Fragment{Owner: Owner(in.Request.Key())}}
	host := &step.Fragment.Host
	v4, v6 := p.families()
	if v4 {
		host.IPTables = append(host.IPTables, p.inVariants(in.Answers[forwardChain("ip")], false)...)
	}
	if v6 {
		host.IPTables = append(host.IPTables, p.inVariants(in.Answers[forwardChain("ip6")], true)...)
	}
	if in.Answers[firewalld()].Found {
		host.Sources = p.sources()
	}
	return step
}

// inVariants returns the container's rules in each variant of iptables that may have them: the default variant at the
// time of the ADD is unknown.
func (p firewallPlan) inVariants(found state.Answer, v6 bool) []state.IPTables {
	var out []state.IPTables
	for _, kind := range strings.Fields(found.Value) {
		t := p.filter(v6)
		t.NFT, t.Legacy = kind == state.KindNFT, kind == state.KindLegacy
		out = append(out, t)
	}
	return out
}

// ExpectQueries returns the query that shows which backend the reference plugin used.
func (Firewall) ExpectQueries(in Input) []state.Query {
	if c, err := decoded(in, readFirewall); err != nil || c.Backend != "" {
		return nil
	}
	return []state.Query{firewalld()}
}

// Expect returns what the reference plugin creates; it has no nftables backend.
func (Firewall) Expect(in Input) (state.Fragment, error) {
	f := state.Fragment{Owner: Owner(in.Request.Key())}
	c, err := decoded(in, readFirewall)
	if err != nil || c.Backend == backendNFTables || in.Chain.Prev == nil {
		return f, err
	}
	p := firewallPlan{conf: c}
	for _, ip := range in.Chain.Prev.IPs {
		p.addrs = append(p.addrs, ip.Address.Addr())
	}
	if c.Backend == backendFirewalld || c.Backend == "" && in.Answers[firewalld()].Found {
		f.Host.Sources = p.sources()
		return f, nil
	}
	if c.IngressPolicy != policyOpen {
		p.bridge = firstInterface(in)
	}
	f.Host.IPTables = p.iptables()
	return f, nil
}

func (p firewallPlan) sources() []state.ZoneSource {
	var out []state.ZoneSource
	for _, a := range p.addrs {
		out = append(out, state.ZoneSource{Zone: p.conf.FirewalldZone, Source: full(a)})
	}
	return out
}
