// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"net/netip"
	"slices"
	"strings"

	"github.com/weft-net/weft/internal/model"
)

// Party is an end of a connection: a pod, or an address.
type Party struct {
	Pod  model.PodRef `json:"pod,omitzero"`
	Addr netip.Addr   `json:"address,omitzero"`
}

// Query asks for one connection.
type Query struct {
	From Party `json:"from"`
	To   Party `json:"to"`
	// Network is the one whose addresses are meant; empty: the cluster's.
	Network string `json:"network,omitempty"`
	// Protocol is empty for what has no ports (ping).
	Protocol model.Protocol `json:"protocol,omitempty"`
	Port     uint16         `json:"port,omitempty"`
	// PortName names a port of the pod at the other end, instead of its number.
	PortName string `json:"portName,omitempty"`
}

// Answer says what becomes of a connection between two addresses.
type Answer struct {
	Flow    Flow   `json:"flow"`
	Allowed bool   `json:"allowed"`
	Sides   []Side `json:"sides"`
	// Note says why there is nothing more to say, where no policy exists.
	Note string `json:"note,omitempty"`
}

// Side is what one end's policies say: what the source may send, what the destination may receive. An end that is no
// pod has none.
type Side struct {
	Direction string       `json:"direction"`
	Pod       model.PodRef `json:"pod"`
	// Here: this node judges it. Otherwise the pod's node does, by what this node would do in its place.
	Here    bool `json:"here"`
	Allowed bool `json:"allowed"`
	// Selected are all policies that select the pod in this direction; without any it is not isolated.
	Selected []model.PolicyKey `json:"selected,omitempty"`
	// Decided are the policies that decided: one with a rule, or those that isolate the pod together. None: nothing
	// denied.
	Decided []model.PolicyKey `json:"decided,omitempty"`
	// Rule is the number of the rule in its policy, -1 where none decided.
	Rule int `json:"rule"`
	// Text is what the kernel has: a rule, the chain that it is in, and the element of the set that made it true.
	Text    string `json:"text,omitempty"`
	Chain   string `json:"chain,omitempty"`
	Set     string `json:"set,omitempty"`
	Element string `json:"element,omitempty"`
}

// why says for each family that both ends have what becomes of a connection, and which policies, rules and elements
// decide it.
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
			out = append(out, a)
		}
	}
	if len(out) == 0 {
		return nil, model.Faultf(model.CodeInvalidConf, "", "%s and %s have no addresses of one family", q.From, q.To)
	}
	return out, nil
}

// portOf is a port that a pod's containers name. Without a protocol it is the first one of that name.
func (x *explainer) portOf(to Party, name string, protocol model.Protocol) (model.Protocol, uint16, error) {
	if to.Pod.Name == "" {
		return "", 0, model.Faultf(model.CodeInvalidConf, "give its number, or name the pod",
			"port %q: only pods have named ports, and %s is an address", name, to.Addr)
	}
	var known []string
	for _, p := range x.cluster.pod(to.Pod.Namespace, to.Pod.Name).ports() { // it is known: it has addresses
		if p.Name == name && (protocol == "" || p.Protocol == protocol) {
			return p.Protocol, p.Number, nil
		}
		known = append(known, p.Name+"/"+strings.ToLower(string(p.Protocol)))
	}
	hint := "give its number"
	if len(known) > 0 {
		hint = "it has " + strings.Join(known, ", ")
	}
	return "", 0, model.Faultf(model.CodeInvalidConf, hint, "%s has no port %q", to, name)
}

// String is the pod's name or the address.
func (p Party) String() string {
	if p.Pod.Name != "" {
		return "pod " + p.Pod.String()
	}
	return p.Addr.String()
}

// addrsOf are the addresses of a party, one of a family.
func (x *explainer) addrsOf(p Party, network string) ([]netip.Addr, error) {
	if p.Pod.Name == "" {
		return []netip.Addr{p.Addr.Unmap()}, nil
	}
	pod := x.cluster.pod(p.Pod.Namespace, p.Pod.Name)
	if pod == nil || pod.identity == nil {
		return nil, model.Faultf(model.CodeInvalidConf, "look for it with kubectl get pods -A", "%s is not known", p)
	}
	var out []netip.Addr
	for h := range pod.homes {
		if h.network == network && !slices.ContainsFunc(out, func(a netip.Addr) bool { return a.Is4() == h.addr.Is4() }) {
			out = append(out, h.addr)
		}
	}
	if len(out) == 0 {
		return nil, model.Faultf(model.CodeInvalidConf, "it has none yet, has finished, or uses its node's network",
			"%s has no address that policies see", p)
	}
	return out, nil
}

// side is what is said of the connection on one side; false when no pod is there.
func (x *explainer) side(q Query, f Flow, dir direction) (Side, bool) {
	party, own := q.From, f.Src
	if dir == ingress {
		party, own = q.To, f.Dst
	}
	if party.Pod.Name == "" {
		var ok bool
		if party.Pod, ok = x.cluster.podAt(homed{q.Network, own}); !ok {
			return Side{}, false
		}
	}
	e, here := x.standIn(party.Pod, q.Network, own)
	s := Side{Direction: dir.String(), Pod: party.Pod, Here: here, Allowed: true, Rule: -1}
	if e.pod == nil {
		return s, true
	}
	t := e.table
	done := func() {}
	if !here {
		t, done = x.trial(e)
	}
	defer done()
	if c := e.chains[dir]; c != nil {
		comb := x.cluster.combination(e.subject(), dir)
		s.Selected = comb.selected()
		if dir == ingress && here && slices.Contains(x.tables.self, f.Src) {
			return s, true // a node reaches its own pods
		}
		d := x.walker().walk(t, c.name, f, dir)
		s.decide(d)
		if own, ok := x.walker().whose(d.rule.together, f, dir); ok {
			s.Decided, s.Rule = []model.PolicyKey{own.from}, own.number
		}
	}
	return s, true
}

// decide notes what a walk found.
func (s *Side) decide(d decision) {
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
