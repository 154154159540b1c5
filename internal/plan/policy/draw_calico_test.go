// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"net/netip"

	"pgregory.net/rapid"

	"github.com/weft-net/weft/internal/model"
)

func drawCalicoPolicy(t *rapid.T, ns, name string) model.Policy {
	p := model.Policy{
		PolicyKey: model.PolicyKey{Kind: model.KindGlobalNetworkPolicy, Name: name},
		Tier:      rapid.SampledFrom([]model.PolicyTier{model.TierDefault, "first", "second"}).Draw(t, "tier"),
		Order:     drawOrder(t), Subject: model.PodPeer{Endpoints: drawEndpoints(t)},
	}
	if rapid.Bool().Draw(t, "of a namespace") {
		p.Kind, p.Namespace, p.Subject.Namespace = model.KindCalicoNetworkPolicy, ns, ns
	} else {
		p.Host = drawScope(t)
	}
	p.Ingress, p.Egress = drawCalicoDirection(t, ns), drawCalicoDirection(t, ns)
	return p
}

func drawOrder(t *rapid.T) *float64 {
	return rapid.SampledFrom([]*float64{nil, new(1.0), new(1000.0), new(2000.5)}).Draw(t, "order")
}

func drawExpression(t *rapid.T) model.Expression {
	text := rapid.SampledFrom([]string{
		"", "all()", `app == "1"`, `app != "1"`, `has(tier)`, `!has(tier) || app in {"2"}`, `projectcalico.org/namespace == "x"`,
		`pcns.app == "1"`, `pcsa.app != "1"`, `projectcalico.org/serviceaccount == "s"`, `set == "1"`, `pcns.projectcalico.org/name == "y"`,
	}).Draw(t, "expression")
	e, err := model.ParseExpression(text)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

func drawEndpoints(t *rapid.T) *model.EndpointSelector {
	e := &model.EndpointSelector{Labels: drawExpression(t)}
	switch rapid.IntRange(0, 6).Draw(t, "scope") {
	case 0:
		e.Global = true
	case 1, 2:
		e.Namespaces = new(drawExpression(t))
	case 3:
		e.ServiceAccounts = []string{"s"}
	case 4:
		e.ServiceAccountLabels = new(drawExpression(t))
	}
	return e
}

func drawCalicoDirection(t *rapid.T, ns string) model.PolicyDirection {
	d := model.PolicyDirection{On: rapid.Bool().Draw(t, "on")}
	if !d.On {
		return d
	}
	d.Rules = rapid.SliceOfN(rapid.Custom(func(t *rapid.T) model.PolicyRule {
		r := model.PolicyRule{Action: rapid.SampledFrom([]model.PolicyAction{
			model.PolicyAccept, model.PolicyDeny, model.PolicyPass, model.PolicyLog,
		}).Draw(t, "action")}
		switch rapid.IntRange(0, 9).Draw(t, "invalid") {
		case 0:
			r.Action, r.AnyPeer, r.AnyPort = model.PolicyDeny, true, true // as an invalid rule that denies
		case 1:
			r.Action = model.PolicyAccept // as one that accepts
		default:
			r.Conditions = drawConditions(t, ns)
		}
		return r
	}), 0, 3).Draw(t, "rules")
	return d
}

func drawConditions(t *rapid.T, ns string) *model.RuleConditions {
	c := &model.RuleConditions{
		Family:      rapid.SampledFrom([]int{0, 0, 4, 6}).Draw(t, "family"),
		Protocol:    rapid.SampledFrom([]uint8{0, 1, 6, 17, 58, 132, 47, 201}).Draw(t, "protocol"),
		NotProtocol: rapid.SampledFrom([]uint8{0, 0, 6, 1}).Draw(t, "not protocol"),
	}
	if c.Protocol == 1 || c.Protocol == 58 {
		c.ICMP, c.NotICMP = drawICMP(t), drawICMP(t)
	}
	c.Source, c.Destination = drawEnd(t, ns, c.Protocol), drawEnd(t, ns, c.Protocol)
	if rapid.IntRange(0, 3).Draw(t, "service") == 0 {
		c.Destination.Service = &model.ServiceMatch{Namespace: "x", Name: "web", Ports: rapid.Bool().Draw(t, "of ports")}
	}
	return c
}

func drawICMP(t *rapid.T) *model.ICMPMatch {
	if rapid.Bool().Draw(t, "any type") {
		return nil
	}
	m := &model.ICMPMatch{Type: rapid.SampledFrom([]uint8{0, 8, 128}).Draw(t, "type")}
	if rapid.Bool().Draw(t, "code") {
		m.Code = new(rapid.SampledFrom([]uint8{0, 3}).Draw(t, "code"))
	}
	return m
}

func drawEnd(t *rapid.T, ns string, protocol uint8) (e model.EndConditions) {
	e.Nets, e.NotNets = drawNets(t), drawNets(t)
	peer := func(what string) *model.PodPeer {
		p := &model.PodPeer{Endpoints: drawEndpoints(t)}
		switch rapid.IntRange(0, 3).Draw(t, what) {
		case 0:
			return p
		case 1:
			p.Namespace = ns
			return p
		}
		return nil
	}
	e.Peer, e.NotPeer = peer("peer"), peer("not peer")
	if transport := map[uint8]model.Protocol{6: model.TCP, 17: model.UDP, 132: model.SCTP}[protocol]; transport != "" {
		e.Ports, e.NotPorts = drawPorts(t, transport), drawPorts(t, transport)
	}
	return e
}

func drawNets(t *rapid.T) []netip.Prefix {
	if rapid.Bool().Draw(t, "any net") {
		return nil
	}
	return rapid.SliceOfN(rapid.Map(rapid.SampledFrom([]string{
		"10.0.0.0/30", "10.0.0.2/32", "0.0.0.0/0", "::/0", "fd00::/126", "192.168.0.0/16",
	}), netip.MustParsePrefix), 1, 2).Draw(t, "nets")
}

func drawPorts(t *rapid.T, protocol model.Protocol) []model.PolicyPort {
	return rapid.SliceOfN(rapid.Custom(func(t *rapid.T) model.PolicyPort {
		p := drawPort(t)
		if p.Name == "" {
			p.First, p.Last = max(p.First, 1), max(p.Last, 1)
		}
		p.Protocol = protocol
		return p
	}), 0, 2).Draw(t, "ports")
}

func drawNetworkSet(t *rapid.T, ns, name string) model.NetworkSet {
	s := model.NetworkSet{
		Name: name, Nets: drawNets(t), Labels: map[string]string{"set": rapid.SampledFrom([]string{"1", "2"}).Draw(t, "set")},
	}
	if rapid.Bool().Draw(t, "of a namespace") {
		s.Namespace = ns
	}
	return s
}

// calicoStep changes what only Calico's policies use.
func (f *facts) calicoStep(t *rapid.T, x *Index, ns, name string) {
	gone := rapid.IntRange(0, 3).Draw(t, "gone") == 0
	switch rapid.IntRange(0, 3).Draw(t, "calico") {
	case 0:
		tier := model.Tier{
			Name:  rapid.SampledFrom([]model.PolicyTier{model.TierDefault, "first", "second"}).Draw(t, "tier"),
			Order: drawOrder(t), Pass: rapid.Bool().Draw(t, "pass"),
		}
		if f.tiers[tier.Name] = tier; gone {
			delete(f.tiers, tier.Name)
			x.Calico().DelTier(tier.Name)
			return
		}
		x.Calico().SetTier(tier)
	case 1:
		s := drawNetworkSet(t, ns, name)
		if f.sets[s.Namespace+"/"+s.Name] = s; gone {
			delete(f.sets, s.Namespace+"/"+s.Name)
			x.Calico().DelNetworkSet(s.Namespace, s.Name)
			return
		}
		x.Calico().SetNetworkSet(s)
	case 2:
		a := model.ServiceAccount{Namespace: ns, Name: "s", Labels: drawLabels(t)}
		if f.accounts[ns] = a; gone {
			delete(f.accounts, ns)
			x.Calico().DelServiceAccount(ns, "s")
			return
		}
		x.Calico().SetServiceAccount(a)
	case 3:
		s := model.EndpointSlice{Namespace: "x", Name: name, Service: rapid.SampledFrom([]string{"web", "other"}).Draw(t, "of")}
		for _, a := range drawAddrs(t) {
			s.Endpoints = append(s.Endpoints, model.ServiceEndpoint{Addr: a, Protocol: model.TCP, Port: 80})
		}
		if f.slices[name] = s; gone {
			delete(f.slices, name)
			x.Calico().DelEndpointSlice("x", name)
			return
		}
		x.Calico().SetEndpointSlice(s)
	}
}

// calico sets in a fresh index what only Calico's policies use.
func (f *facts) calico(x *Index) {
	for _, t := range f.tiers {
		x.Calico().SetTier(t)
	}
	for _, s := range f.sets {
		x.Calico().SetNetworkSet(s)
	}
	for _, a := range f.accounts {
		x.Calico().SetServiceAccount(a)
	}
	for _, s := range f.slices {
		x.Calico().SetEndpointSlice(s)
	}
}

// endCalico takes it back.
func (f *facts) endCalico(x *Index) {
	for name := range f.tiers {
		x.Calico().DelTier(name)
	}
	for _, s := range f.sets {
		x.Calico().DelNetworkSet(s.Namespace, s.Name)
	}
	for _, a := range f.accounts {
		x.Calico().DelServiceAccount(a.Namespace, a.Name)
	}
	for name := range f.slices {
		x.Calico().DelEndpointSlice("x", name)
	}
}
