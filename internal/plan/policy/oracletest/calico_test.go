// SPDX-License-Identifier: Apache-2.0

package oracletest_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/weft-net/weft/internal/calico"
	"github.com/weft-net/weft/internal/cluster/store"
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/plan/policy"
	"github.com/weft-net/weft/internal/plan/policy/naive"
)

// TestCalico compares the verdict of the compiled tables with the reference evaluator, for random clusters with Calico's
// own policies among those of Kubernetes.
func TestCalico(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		d := draw{T: rt}
		w := d.world(6, 3, 2)
		d.calico(&w)
		p := compile(w, policy.Config{SeparateChains: d.number(0, 1, "separate chains")})
		for _, packet := range packets(w) {
			got, err := p.allowed(w, packet)
			if err != nil {
				rt.Fatal(err)
			}
			if want := w.Allowed(packet); got != want {
				text, _ := json.MarshalIndent(w.Calico, "", " ")
				rt.Fatalf("%s: the plan says %t, the specification %t\n%s\n%s\n%s", describePacket(w, packet), got, want,
					describe(w), text, p)
			}
		}
	})
}

// calico draws Calico's objects.
func (d draw) calico(w *naive.World) {
	c := &naive.Calico{Accounts: map[string]map[string]string{}}
	w.Calico = c
	for i := range w.Pods {
		w.Pods[i].Account = d.one("account", "", "s1", "s2")
	}
	for _, ns := range namespaces() {
		c.Accounts[ns+"/s1"] = d.labels()
	}
	for _, name := range []string{"default", "first", "second"} {
		if t := (naive.CalicoTier{Name: name}); d.yes("tier") {
			t.Spec.Order, t.Spec.DefaultAction = d.order(500, 2000, 3e7), d.one("default action", "", "Deny", "Pass")
			c.Tiers = append(c.Tiers, t)
		}
	}
	for i := range d.number(0, 2, "sets") {
		s := naive.CalicoSet{Metadata: naive.Metadata{Name: fmt.Sprintf("s%d", i)}, Labels: d.labels(), Nets: d.nets()}
		if d.yes("of a namespace") {
			s.Metadata.Namespace = d.one("of namespace", namespaces()...)
		}
		s.Incomplete = d.seldom(4, "incomplete")
		c.Sets = append(c.Sets, s)
	}
	for i := range d.number(1, 6, "Calico policies") {
		c.Policies = append(c.Policies, d.calicoPolicy([]string{"a", "a-b", "ab", "a.c", "b", "b-a"}[i]))
	}
}

func (d draw) order(of ...float64) *float64 {
	if d.seldom(3, "no order") {
		return nil
	}
	return new(rapid.SampledFrom(of).Draw(d.T, "order"))
}

func (d draw) calicoPolicy(name string) naive.CalicoPolicy {
	p := naive.CalicoPolicy{Metadata: naive.Metadata{Name: name}}
	p.Spec.Tier, p.Spec.Order = d.one("tier", "", "default", "first", "second"), d.order(1, 1000, 2000)
	if d.yes("of a namespace") {
		p.Metadata.Namespace = d.one("of namespace", namespaces()...)
	} else if d.yes("of namespaces") {
		p.Spec.NamespaceSelector = d.calicoSelector(1)
	}
	if d.yes("some") {
		p.Spec.Selector = d.calicoSelector(2)
	}
	if d.seldom(4, "of accounts") {
		p.Spec.ServiceAccountSelector = d.calicoSelector(0)
	}
	p.Spec.Types = rapid.SampledFrom([][]string{nil, {"Ingress"}, {"Egress"}, {"Ingress", "Egress"}}).Draw(d.T, "types")
	for range d.number(0, 3, "ingress rules") {
		p.Spec.Ingress = append(p.Spec.Ingress, d.calicoRule())
	}
	for range d.number(0, 3, "egress rules") {
		p.Spec.Egress = append(p.Spec.Egress, d.calicoRule())
	}
	return p
}

// calicoSelector draws a selector of that depth at most.
func (d draw) calicoSelector(depth int) *naive.CalicoSelector {
	if depth > 0 && d.seldom(3, "joined") {
		s := &naive.CalicoSelector{Op: d.one("operator", "&&", "||", "!"), Parts: []naive.CalicoSelector{*d.calicoSelector(depth - 1)}}
		if s.Op != "!" {
			s.Parts = append(s.Parts, *d.calicoSelector(depth - 1))
		}
		return s
	}
	s := &naive.CalicoSelector{
		Op: d.one("operator", "==", "!=", "in", "not in", "has", "contains", "starts with", "ends with", "all()"),
	}
	s.Label = d.one("label", "app", "tier", "projectcalico.org/name", "projectcalico.org/namespace", "pcns.tier", "pcsa.app",
		"projectcalico.org/serviceaccount", "projectcalico.org/orchestrator")
	s.Value = d.one("value", "a", "b", "x", "y", "s1", "k8s")
	return s
}

func (d draw) calicoRule() naive.CalicoRule {
	r := naive.CalicoRule{
		Action:    d.one("action", "Allow", "Deny", "Pass", "Log"),
		IPVersion: rapid.SampledFrom([]int{0, 0, 4, 6}).Draw(d.T, "family"),
		Protocol:  d.one("protocol", "", "TCP", "UDP", "SCTP", "ICMP", "ICMPv6"), NotProtocol: d.one("not", "", "", "TCP", "ICMP"),
	}
	if r.Protocol == "ICMP" || r.Protocol == "ICMPv6" {
		r.ICMP, r.NotICMP = d.calicoICMP(), d.calicoICMP()
	}
	ports := r.Protocol == "TCP" || r.Protocol == "UDP" || r.Protocol == "SCTP"
	r.Source, r.Destination = d.calicoEnd(false), d.calicoEnd(ports)
	return r
}

func (d draw) calicoICMP() *naive.CalicoICMP {
	if d.yes("any type") {
		return nil
	}
	m := &naive.CalicoICMP{Type: rapid.SampledFrom([]int{0, 8, 128}).Draw(d.T, "type")}
	if d.yes("code") {
		m.Code = new(rapid.SampledFrom([]int{0, 3}).Draw(d.T, "code"))
	}
	return m
}

func (d draw) calicoEnd(ports bool) (e naive.CalicoEnd) {
	if d.seldom(4, "nets") {
		e.Nets = d.nets()
	}
	if d.seldom(4, "not nets") {
		e.NotNets = d.nets()
	}
	if d.seldom(2, "selector") {
		e.Selector = d.calicoSelector(2)
	}
	if d.seldom(5, "not selector") {
		e.NotSelector = d.calicoSelector(1)
	}
	switch d.number(0, 7, "namespaces") {
	case 0:
		e.NamespaceSelector = &naive.CalicoSelector{Op: "global()"}
	case 1, 2:
		e.NamespaceSelector = d.calicoSelector(1)
	}
	if d.seldom(5, "accounts") {
		e.ServiceAccounts = &naive.CalicoAccounts{}
		if d.yes("names") {
			e.ServiceAccounts.Names = []string{"s1"}
		} else {
			e.ServiceAccounts.Selector = d.calicoSelector(0)
		}
	}
	if ports {
		e.Ports, e.NotPorts = d.calicoPorts(), d.calicoPorts()
	}
	return e
}

func (d draw) calicoPorts() (out []any) {
	for range d.number(0, 2, "ports") {
		out = append(out, rapid.SampledFrom([]any{53, 80, 8080, "80:81", "1:65535", "web", "dns"}).Draw(d.T, "port"))
	}
	return out
}

func (d draw) nets() (out []string) {
	for range d.number(1, 2, "nets") {
		out = append(out, d.block().CIDR)
	}
	return out
}

// learnCalico passes Calico's objects to a compiler, as an agent decodes them.
func learnCalico(x *policy.Index, c *naive.Calico) {
	object := func(kind string, m naive.Metadata, labels map[string]string, spec any) store.Object {
		meta := map[string]any{"name": m.Name, "labels": labels}
		if m.Namespace != "" {
			meta["namespace"] = m.Namespace
		}
		raw, err := json.Marshal(map[string]any{"apiVersion": "projectcalico.org/v3", "kind": kind, "metadata": meta, "spec": spec})
		if err != nil {
			panic(err)
		}
		o, err := store.NewObject(raw)
		if err != nil {
			panic(err)
		}
		return o
	}
	must := func(err error) {
		if err != nil {
			panic(err)
		}
	}
	for _, t := range c.Tiers {
		tier, err := calico.Tier(object("Tier", naive.Metadata{Name: t.Name}, nil, t.Spec))
		must(err)
		x.Calico().SetTier(*tier)
	}
	for _, s := range c.Sets {
		kind := "GlobalNetworkSet"
		if s.Metadata.Namespace != "" {
			kind = "NetworkSet"
		}
		nets := s.Nets
		if s.Incomplete {
			nets = append([]string{"10.0.0.0/33"}, nets...)
		}
		set, err := calico.NetworkSet(object(kind, s.Metadata, s.Labels, map[string]any{"nets": nets}))
		if (err != nil) != s.Incomplete {
			panic(err)
		}
		x.Calico().SetNetworkSet(*set)
	}
	for _, p := range c.Policies {
		kind := "GlobalNetworkPolicy"
		if p.Metadata.Namespace != "" {
			kind = "NetworkPolicy"
		}
		one, err := calico.Policy(object(kind, p.Metadata, nil, p.Spec))
		must(err)
		if len(one.Errors) > 0 {
			panic(fmt.Sprintf("%q", one.Errors))
		}
		x.SetPolicy(one)
	}
	for _, h := range c.Hosts {
		one, err := calico.HostEndpoint(object("HostEndpoint", h.Metadata, h.Labels, h.Spec))
		must(err)
		x.Calico().SetHostEndpoint(*one)
	}
	for key, labels := range c.Accounts {
		namespace, name, _ := strings.Cut(key, "/")
		x.Calico().SetServiceAccount(model.ServiceAccount{Namespace: namespace, Name: name, Labels: labels})
	}
}
