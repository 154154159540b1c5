// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"net/netip"
	"slices"
	"strings"

	"github.com/weft-net/weft/internal/model"
)

// ConnectionEnd is an end of a connection: a pod, or an address.
type ConnectionEnd struct {
	Pod  model.PodRef `json:"pod,omitzero"`
	Addr netip.Addr   `json:"address,omitzero"`
}

// Query is a connection to explain.
type Query struct {
	From ConnectionEnd `json:"from"`
	To   ConnectionEnd `json:"to"`
	// Network is the network of the addresses; empty: the cluster's.
	Network string `json:"network,omitempty"`
	// Protocol is empty for protocols without ports (ping).
	Protocol model.Protocol `json:"protocol,omitempty"`
	Port     uint16         `json:"port,omitempty"`
	// PortName names a port of the pod at the other end, instead of its number.
	PortName string `json:"portName,omitempty"`
}

// Answer is whether a connection between two addresses is allowed, and why.
type Answer struct {
	Flow    Flow   `json:"flow"`
	Allowed bool   `json:"allowed"`
	Sides   []Side `json:"sides"`
	// Unknown are reasons why it may be denied, of a connection that is not known to be: then it is not Allowed either.
	Unknown []string `json:"unknown,omitempty"`
	// Note is why there are no rules, if no policy exists.
	Note string `json:"note,omitempty"`
}

// Side is the decision of one end's policies: egress at the source, ingress at the destination. An end that is no pod
// has none.
type Side struct {
	Direction string       `json:"direction"`
	Pod       model.PodRef `json:"pod"`
	// HostEndpoint is the side's host endpoint if it is not a pod's, with the interface, which is empty for all others.
	HostEndpoint string `json:"hostEndpoint,omitempty"`
	Interface    string `json:"interface,omitempty"`
	// Local: this node enforces it. Otherwise the pod's node does; the answer is what this node would do in its place.
	Local   bool `json:"here"`
	Allowed bool `json:"allowed"`
	// Selected are all policies that select the pod in this direction; without any it is not isolated.
	Selected []model.PolicyKey `json:"selected,omitempty"`
	// Decided are the policies that decided: one with a rule, or all that isolate the pod. None: no policy denied it.
	Decided []model.PolicyKey `json:"decided,omitempty"`
	// Rule is the number of the rule in its policy, -1 if no rule decided.
	Rule int `json:"rule"`
	// BySourcePort: a policy that selects the pod has rules about ports of the source.
	BySourcePort bool `json:"bySourcePort,omitempty"`
	// Text is the kernel's rule, its chain, and the element of the set that matched.
	Text    string `json:"text,omitempty"`
	Chain   string `json:"chain,omitempty"`
	Set     string `json:"set,omitempty"`
	Element string `json:"element,omitempty"`
}

// AtHost reports whether it is about the node's interfaces, and not about a pod.
func (s Side) AtHost() bool { return s.Pod.Name == "" }

// why implements Index.Why.
func (x *explainer) why(q Query) ([]Answer, error) {
	from, err := x.addrsOf(q.From, q.Network)
	if err != nil {
		return nil, err
	}
	to, err := x.addrsOf(q.To, q.Network)
	if err != nil {
		return nil, err
	}
	if q.PortName != "" {
		if q.Protocol, q.Port, err = x.portOf(q.To, q.PortName, q.Protocol); err != nil {
			return nil, err
		}
	}
	var out []Answer
	for _, src := range from {
		for _, dst := range to {
			if src.Is4() != dst.Is4() {
				continue
			}
			f := Flow{Src: src, Dst: dst, Protocol: q.Protocol, DstPort: q.Port}
			a := Answer{Flow: f, Allowed: true}
			for _, dir := range []direction{egress, ingress} {
				if s, ok := x.side(q, f, dir); ok {
					a.Sides = append(a.Sides, s)
					a.Allowed = a.Allowed && s.Allowed
				}
			}
			if q.Network == "" {
				var sides []Side
				sides, a.Unknown = x.whyHost(f)
				for _, s := range sides {
					a.Sides = append(a.Sides, s)
					a.Allowed = a.Allowed && s.Allowed
				}
				if !a.Allowed {
					a.Unknown = nil
				}
				a.Allowed = a.Allowed && len(a.Unknown) == 0
			}
			out = append(out, a)
		}
	}
	if len(out) == 0 {
		return nil, model.Errorf(model.CodeInvalidConf, "", "%s and %s have no addresses of one family", q.From, q.To)
	}
	return out, nil
}

// portOf returns a named port of a pod's containers. Without a protocol it is the first one of that name.
func (x *explainer) portOf(to ConnectionEnd, name string, protocol model.Protocol) (model.Protocol, uint16, error) {
	if to.Pod.Name == "" {
		return "", 0, model.Errorf(model.CodeInvalidConf, "give its number, or name the pod",
			"port %q: only pods have named ports, and %s is an address", name, to.Addr)
	}
	var known []string
	for _, p := range x.cluster.pods.pod(to.Pod.Namespace, to.Pod.Name).ports() { // it is known: it has addresses
		if p.Name == name && (protocol == "" || p.Protocol == protocol) {
			return p.Protocol, p.Number, nil
		}
		known = append(known, p.Name+"/"+strings.ToLower(string(p.Protocol)))
	}
	hint := "give its number"
	if len(known) > 0 {
		hint = "it has " + strings.Join(known, ", ")
	}
	return "", 0, model.Errorf(model.CodeInvalidConf, hint, "%s has no port %q", to, name)
}

// String returns the pod's name or the address.
func (p ConnectionEnd) String() string {
	if p.Pod.Name != "" {
		return "pod " + p.Pod.String()
	}
	return p.Addr.String()
}

// addrsOf returns the addresses of an end, one for each family.
func (x *explainer) addrsOf(p ConnectionEnd, network string) ([]netip.Addr, error) {
	if p.Pod.Name == "" {
		return []netip.Addr{p.Addr.Unmap()}, nil
	}
	pod := x.cluster.pods.pod(p.Pod.Namespace, p.Pod.Name)
	if pod == nil || pod.identity == nil {
		return nil, model.Errorf(model.CodeInvalidConf, "run kubectl get pods -A", "%s is not known", p)
	}
	var out []netip.Addr
	for h := range pod.networkAddrs {
		if h.network == network && !slices.ContainsFunc(out, func(a netip.Addr) bool { return a.Is4() == h.addr.Is4() }) {
			out = append(out, h.addr)
		}
	}
	if len(out) == 0 {
		return nil, model.Errorf(model.CodeInvalidConf, "it has none yet, has finished, or uses its node's network",
			"%s has no address that policies see", p)
	}
	return out, nil
}

// side returns the decision on one side of the connection; false if no pod is there.
func (x *explainer) side(q Query, f Flow, dir direction) (Side, bool) {
	party, own := q.From, f.Src
	if dir == ingress {
		party, own = q.To, f.Dst
	}
	if party.Pod.Name == "" {
		var ok bool
		if party.Pod, ok = x.cluster.pods.podAt(networkAddr{q.Network, own}); !ok {
			return Side{}, false
		}
	}
	e, here := x.endpointOrTemplate(party.Pod, q.Network, own)
	s := Side{Direction: dir.String(), Pod: party.Pod, Local: here, Allowed: true, Rule: -1}
	if e.pod == nil {
		return s, true
	}
	t := e.table
	done := func() {}
	if !here {
		t, done = x.scratchTable(e)
	}
	defer done()
	if c := e.chains[dir]; c != nil {
		comb := x.cluster.combination(e.subject(), dir)
		s.Selected = comb.selected()
		s.BySourcePort = slices.ContainsFunc(s.Selected, func(k model.PolicyKey) bool {
			return x.cluster.policies[k].bySourcePort(dir)
		})
		if dir == ingress && here && slices.Contains(x.tables.self, f.Src) {
			return s, true // a node always reaches its own pods
		}
		d := x.walker().walk(t, c.name, f, dir)
		s.setDecision(d)
		if own, ok := x.walker().ruleFor(d.rule.merged, f, dir); ok {
			s.Decided, s.Rule = []model.PolicyKey{own.from}, own.number
		}
	}
	return s, true
}

// decide implements Index.Decide.
func (x *explainer) decide(network string, f Flow) (out []Side) {
	q := Query{From: ConnectionEnd{Addr: f.Src}, To: ConnectionEnd{Addr: f.Dst}, Network: network}
	for _, end := range []struct {
		addr netip.Addr
		dir  direction
	}{{f.Src, egress}, {f.Dst, ingress}} {
		if len(x.endpoints.byAddr[end.addr]) == 0 { // of another node, or outside
			continue
		}
		pod, ok := x.cluster.pods.podAt(networkAddr{network, end.addr})
		if !ok {
			continue
		}
		if _, here := x.endpointOrTemplate(pod, network, end.addr); !here {
			continue
		}
		if s, ok := x.side(q, f, end.dir); ok {
			out = append(out, s)
		}
	}
	return out
}

// setDecision stores the result of a walk.
func (s *Side) setDecision(d decision) {
	s.Allowed = d.verdict != verdictDrop
	if d.verdict == "" {
		return
	}
	s.Text, s.Chain, s.Set, s.Element = d.rule.text().Text, d.chain.name, d.set, d.element
	switch {
	case d.rule.from != (model.PolicyKey{}):
		s.Decided, s.Rule = []model.PolicyKey{d.rule.from}, d.rule.number
	case d.chain.denies != nil:
		s.Decided = d.chain.denies.Policies
	}
}
