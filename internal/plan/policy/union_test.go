// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/weft-net/weft/internal/model"
)

// Merged policies allow the same connections as separate ones, and the answer to "why" names a policy and a rule that
// allows it.
func TestUnion(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		separate, merged := New(Config{Node: "n1", SeparateChains: 1000}), New(Config{Node: "n1", SeparateChains: 1})
		both := []*Index{separate, merged}
		for i, ns := range []string{"x", "y"} {
			for j, name := range []string{"a", "b"} {
				p := drawPod(t, ns, name)
				p.UID, p.HostNetwork, p.Phase = "u1", false, "Running"
				p.IPs = addrs(fmt.Sprintf("10.0.0.%d", 2*i+j+1), fmt.Sprintf("fd00::%d", 2*i+j+1))
				for _, x := range both {
					x.SetNamespace(model.Namespace{Name: ns})
					x.SetPod(p)
					x.SetEndpoint(model.WorkloadEndpoint{
						Pod: model.PodRef{Namespace: ns, Name: name, UID: "u1"}, Node: "n1", IfName: "eth0", HostLink: ns + name,
						Addrs: p.IPs, HostEnd: model.HostEndRouted,
					})
				}
			}
		}
		for i := range rapid.IntRange(2, 5).Draw(t, "policies") {
			p := drawPolicy(t, "x", fmt.Sprint("p", i))
			for _, x := range both {
				x.SetPolicy(p)
			}
		}
		every(func(f Flow) {
			want, got := separate.Allowed(EnforcementPoint{}, f), merged.Allowed(EnforcementPoint{}, f)
			if want != got {
				t.Fatalf("%+v: separate %v, merged %v", f, want, got)
			}
			q := Query{From: ConnectionEnd{Addr: f.Src}, To: ConnectionEnd{Addr: f.Dst}, Protocol: f.Protocol, Port: f.DstPort}
			sameAnswers(t, separate, merged, q, want)
		})
	})
}

func every(try func(Flow)) {
	for _, src := range addrs("10.0.0.1", "10.0.0.2", "10.0.0.3", "10.9.9.9", "fd00::2") {
		for _, dst := range addrs("10.0.0.1", "10.0.0.3", "fd00::1", "fd00::3") {
			for port := uint16(79); port < 84; port++ {
				if src.Is4() == dst.Is4() {
					try(Flow{Src: src, Dst: dst, Protocol: model.TCP, DstPort: port, SrcPort: 4000})
				}
			}
		}
	}
}

func sameAnswers(t *rapid.T, separate, merged *Index, q Query, allowed bool) {
	one, err := separate.Why(q)
	two, err2 := merged.Why(q)
	if err != nil || err2 != nil || len(one) != 1 || len(two) != 1 || one[0].Allowed != allowed ||
		two[0].Allowed != allowed {
		t.Fatalf("%+v: %v, separate %+v %v, merged %+v %v", q, allowed, one, err, two, err2)
	}
	for i, s := range two[0].Sides {
		o := one[0].Sides[i]
		if fmt.Sprint(s.Decided, s.Rule, s.Allowed, s.Selected) != fmt.Sprint(o.Decided, o.Rule, o.Allowed, o.Selected) {
			t.Fatalf("%+v:\napart    %+v\ntogether %+v", q, o, s)
		}
	}
}

// A thousand policies of a pod with one port are two rules, with any peers.
func TestManyPoliciesFewRules(t *testing.T) {
	x := New(Config{Node: "n1"})
	x.SetNamespace(model.Namespace{Name: "x"})
	x.SetPod(model.Pod{Namespace: "x", Name: "a", UID: "u", IPs: addrs("10.0.0.1")})
	x.SetEndpoint(model.WorkloadEndpoint{
		Pod: model.PodRef{Namespace: "x", Name: "a", UID: "u"}, Node: "n1", IfName: "eth0", HostLink: "l",
		Addrs: addrs("10.0.0.1"), HostEnd: model.HostEndRouted,
	})
	for i := range 1000 {
		pods := model.Selector{Labels: map[string]string{"n": fmt.Sprint(i)}}
		x.SetPod(model.Pod{
			Namespace: "x", Name: fmt.Sprint("p", i), Labels: pods.Labels,
			IPs: []netip.Addr{netip.AddrFrom4([4]byte{10, 1, byte(i >> 8), byte(i)})},
		})
		x.SetPolicy(model.Policy{
			PolicyKey: model.PolicyKey{Kind: model.KindNetworkPolicy, Namespace: "x", Name: fmt.Sprint("p", i)},
			Subject:   model.PodPeer{Namespace: "x"},
			Ingress: model.PolicyDirection{On: true, Rules: []model.PolicyRule{{
				Action: model.PolicyAccept, Peers: []model.PolicyPeer{{Pods: &model.PodPeer{Namespace: "x", Pods: pods}}},
				Ports: []model.PolicyPort{{Protocol: model.TCP, First: 80, Last: 80}},
			}}},
		})
	}
	rules, elements := 0, 0
	for _, c := range x.Tables()[0].Chains {
		if c.Hook == "" && !strings.HasPrefix(c.Name, "deny/") {
			rules += len(c.Rules)
		}
	}
	for _, s := range x.Tables()[0].Sets {
		if strings.HasPrefix(s.Name, "pods4/") {
			elements += len(s.Elements)
		}
	}
	if rules != 4 || elements != 1000 { // two that accept, one jump to them, one goto to the denial
		t.Errorf("%d rules, %d peers; want 4 and 1000", rules, elements)
	}
	why, err := x.Why(Query{
		From: ConnectionEnd{Pod: model.PodRef{Namespace: "x", Name: "p7"}}, To: ConnectionEnd{Pod: model.PodRef{Namespace: "x", Name: "a"}},
		Protocol: model.TCP, Port: 80,
	})
	if err != nil || !why[0].Allowed || len(why[0].Sides) != 2 ||
		fmt.Sprint(why[0].Sides[1].Decided) != "[NetworkPolicy x/p7]" {
		t.Errorf("%+v %v", why, err)
	}
}

// Policies of other nodes' pods need nothing here: no table, no group, nothing compiled.
func TestNothingForOthers(t *testing.T) {
	x := New(Config{Node: "n1"})
	x.SetNamespace(model.Namespace{Name: "x"})
	for i := range 50 {
		x.SetPod(model.Pod{
			Namespace: "x", Name: fmt.Sprint("p", i), Labels: map[string]string{"n": fmt.Sprint(i)},
			IPs: []netip.Addr{netip.AddrFrom4([4]byte{10, 1, 0, byte(i)})},
		})
		x.SetPolicy(model.Policy{
			PolicyKey: model.PolicyKey{Kind: model.KindNetworkPolicy, Namespace: "x", Name: fmt.Sprint("p", i)},
			Subject:   model.PodPeer{Namespace: "x"},
			Ingress: model.PolicyDirection{
				On: true, Rules: []model.PolicyRule{
					{Action: model.PolicyAccept, AnyPort: true, Peers: []model.PolicyPeer{{Pods: &model.PodPeer{}}}},
				},
			},
		})
	}
	if changes := x.Changes(); len(changes)+len(x.Tables())+len(x.groups.all) != 0 {
		t.Errorf("changes %v, groups %v", changes, x.groups.all)
	}
	for p := range x.compiler.rules {
		t.Errorf("%s is compiled", p.PolicyKey)
	}
}
