// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"strings"

	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/state"
)

// forwardChain asks whether the reference plugin has been at work.
func forwardChain(family string) state.Query {
	return state.Query{Space: state.Host, Chain: family + " filter CNI-FORWARD"}
}

// Trace asks where the reference plugin may have left something of the container.
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

// tracedFirewall is the configuration, and the defaults in the place of one that is refused: both programs use these
// chains.
func tracedFirewall(in Input) firewallConf {
	c, err := decoded(in, readFirewall)
	if err != nil {
		c, _ = readFirewall(model.PluginConf{Type: in.Conf.Type, Raw: []byte("{}")})
	}
	return c
}

// Traces are the container's rules in the reference plugin's chain and its addresses in a zone. Nothing but the
// addresses says whose they are; what ingress policies left stays, as it does with the reference plugin.
func (Firewall) Traces(in Input) Step {
	c := tracedFirewall(in)
	if in.Chain.Prev == nil {
		return Step{}
	}
	p := protection{conf: c}
	for _, ip := range in.Chain.Prev.IPs {
		p.addrs = append(p.addrs, ip.Address.Addr())
	}
	step := Step{Fragment: state.Fragment{Owner: Owner(in.Request.Key())}}
	host := &step.Fragment.Host
	v4, v6 := p.families()
	if v4 {
		host.IPTables = append(host.IPTables, p.ofKinds(in.Answers[forwardChain("ip")], false)...)
	}
	if v6 {
		host.IPTables = append(host.IPTables, p.ofKinds(in.Answers[forwardChain("ip6")], true)...)
	}
	if in.Answers[firewalld()].Found {
		host.Sources = p.sources()
	}
	return step
}

// ofKinds are the container's rules in each kind of iptables that may have them: which one the plain names were when
// the rules were made, nobody knows.
func (p protection) ofKinds(found state.Answer, v6 bool) []state.IPTables {
	var out []state.IPTables
	for _, kind := range strings.Fields(found.Value) {
		t := p.filter(v6)
		t.NFT, t.Legacy = kind == state.KindNFT, kind == state.KindLegacy
		out = append(out, t)
	}
	return out
}

// ExpectQueries asks which of its backends the reference plugin has taken.
func (Firewall) ExpectQueries(in Input) []state.Query {
	if c, err := decoded(in, readFirewall); err != nil || c.Backend != "" {
		return nil
	}
	return []state.Query{firewalld()}
}

// Expect is what the reference plugin makes: it has no nftables.
func (Firewall) Expect(in Input) (state.Fragment, error) {
	f := state.Fragment{Owner: Owner(in.Request.Key())}
	c, err := decoded(in, readFirewall)
	if err != nil || c.Backend == backendNFTables || in.Chain.Prev == nil {
		return f, err
	}
	p := protection{conf: c}
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

func (p protection) sources() []state.ZoneSource {
	var out []state.ZoneSource
	for _, a := range p.addrs {
		out = append(out, state.ZoneSource{Zone: p.conf.FirewalldZone, Source: full(a)})
	}
	return out
}
