// SPDX-License-Identifier: Apache-2.0

package policy_test

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/plan/policy"
)

// TestWhyHost: host endpoints of the node are sides of its connections, and of those that it forwards.
func TestWhyHost(t *testing.T) {
	x := policy.New(policy.Config{Node: "n1"})
	x.SetNode(model.Node{Name: "n1", Addrs: []netip.Addr{netip.MustParseAddr("192.0.2.1")}})
	x.SetPod(model.Pod{Namespace: "shop", Name: "web", UID: "u", Node: "n1", IPs: []netip.Addr{netip.MustParseAddr("10.0.0.1")}})
	x.SetEndpoint(model.WorkloadEndpoint{
		Pod: model.PodRef{Namespace: "shop", Name: "web", UID: "u"}, Node: "n1", IfName: "eth0", HostLink: "cali1",
		HostEnd: model.HostEndRouted, Addrs: []netip.Addr{netip.MustParseAddr("10.0.0.1")},
	})
	h := model.HostEndpoint{Name: "up", Node: "n1", Interface: "eth0", Labels: map[string]string{"host": "yes"}}
	x.Calico().SetHostEndpoint(h)
	all, err := model.ParseExpression("has(host)")
	if err != nil {
		t.Fatal(err)
	}
	tcp := func(action model.PolicyAction, port uint16) model.PolicyRule {
		c := &model.RuleConditions{Protocol: model.NumberTCP}
		c.Destination.Ports = []model.PolicyPort{{Protocol: model.TCP, First: port, Last: port}}
		return model.PolicyRule{Action: action, Conditions: c}
	}
	x.SetPolicy(model.Policy{
		PolicyKey: model.PolicyKey{Kind: model.KindGlobalNetworkPolicy, Name: "p"}, Tier: model.TierDefault,
		Subject: model.PodPeer{Endpoints: &model.EndpointSelector{Labels: all}}, Host: model.HostScope{ApplyOnForward: true},
		Ingress: model.PolicyDirection{On: true, Rules: []model.PolicyRule{tcp(model.PolicyDeny, 22), tcp(model.PolicyAccept, 80)}},
	})
	if key := (model.PolicyKey{Kind: model.KindGlobalNetworkPolicy, Name: "p"}); !x.Calico().SelectsHosts(key) {
		t.Error("the policy selects no host endpoint")
	}
	for _, c := range []struct{ from, to, port, want string }{
		{"192.0.2.9", "192.0.2.1", "80", "ingress of up allowed by [GlobalNetworkPolicy p] 0 1"},
		{"192.0.2.9", "192.0.2.1", "81", "ingress of up denied by [GlobalNetworkPolicy p] 0 -1"},
		{"192.0.2.9", "192.0.2.1", "22", "ingress of up allowed by [] 0 -1"}, // it always stays open
		{"192.0.2.1", "192.0.2.9", "80", "egress of up denied by [HostEndpoint up] 0 -1"},
		{"192.0.2.1", "shop/web", "80", "ingress of  allowed by [] 0 -1"},
		{"shop/web", "192.0.2.1", "81", "egress of  allowed by [] 0 -1"},
		{"192.0.2.9", "shop/web", "81", "ingress of  allowed by [] 0 -1; ingress of up denied by [GlobalNetworkPolicy p] 0 -1"},
		{"shop/web", "192.0.2.9", "81", "egress of  allowed by [] 0 -1"},
		{"192.0.2.9", "192.0.2.8", "81", ""}, // not through this node
	} {
		q := policy.Query{From: party(c.from), To: party(c.to), Protocol: model.TCP}
		if _, err := fmt.Sscan(c.port, &q.Port); err != nil {
			t.Fatal(err)
		}
		answers, err := x.Why(q)
		if err != nil || len(answers) != 1 {
			t.Fatal(answers, err)
		}
		got := sidesText(answers[0])
		denied := slices.ContainsFunc(answers[0].Sides, func(s policy.Side) bool { return !s.Allowed })
		if got != c.want || answers[0].Allowed == denied {
			t.Errorf("%s to %s:%s: %t, %s, not %s", c.from, c.to, c.port, answers[0].Allowed, got, c.want)
		}
	}
}

// sidesText returns the sides of an answer, or why it is not known.
func sidesText(a policy.Answer) string {
	var out []string
	for _, s := range a.Sides {
		out = append(out, fmt.Sprintf("%s of %s %s by %v 0 %d", s.Direction, s.HostEndpoint,
			map[bool]string{true: "allowed", false: "denied"}[s.Allowed], s.Decided, s.Rule))
	}
	return strings.Join(append(out, a.Unknown...), "; ")
}

// TestWhyHostOfOtherNodes: host endpoints of other nodes are sides, too, and what a node sends to itself passes that of the
// loopback. Where it depends on what only the other node knows, the answer is that it is not known, and never that it is
// allowed.
func TestWhyHostOfOtherNodes(t *testing.T) {
	addr := netip.MustParseAddr
	expression := func(text string) model.Expression {
		out, err := model.ParseExpression(text)
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	deny := func(name, selector string, forward bool) model.Policy {
		c := &model.RuleConditions{Protocol: model.NumberTCP}
		c.Destination.Ports = []model.PolicyPort{{Protocol: model.TCP, First: 80, Last: 80}}
		return model.Policy{
			PolicyKey: model.PolicyKey{Kind: model.KindGlobalNetworkPolicy, Name: name}, Tier: model.TierDefault,
			Subject: model.PodPeer{Endpoints: &model.EndpointSelector{Labels: expression(selector)}},
			Host:    model.HostScope{ApplyOnForward: forward},
			Ingress: model.PolicyDirection{On: true, Rules: []model.PolicyRule{
				{Action: model.PolicyDeny, Conditions: c}, {Action: model.PolicyAccept, Conditions: &model.RuleConditions{}},
			}},
		}
	}
	for name, c := range map[string]struct {
		hosts      []model.HostEndpoint
		controller model.HostEndpointController
		forward    bool
		from, to   string
		want       string
	}{
		"all interfaces of another node": {
			hosts: []model.HostEndpoint{{Name: "all", Node: "n2", Interface: "*", Allows: true}}, from: "shop/web", to: "192.0.2.2",
			want: "egress of  allowed by [] 0 -1; ingress of all denied by [GlobalNetworkPolicy p] 0 0",
		},
		"an interface of another node, by its address": {
			hosts: []model.HostEndpoint{
				{Name: "a", Node: "n2", Interface: "eth0", Addrs: []netip.Addr{addr("192.0.2.2")}, Allows: true},
				{Name: "b", Node: "n2", Interface: "eth1", Allows: true},
			},
			from: "192.0.2.9", to: "192.0.2.2", want: "ingress of a denied by [GlobalNetworkPolicy p] 0 0",
		},
		"an address of another node": {
			hosts: []model.HostEndpoint{{Name: "a", Node: "n2", Addrs: []netip.Addr{addr("192.0.2.22")}, Allows: true}},
			from:  "192.0.2.9", to: "192.0.2.22", want: "ingress of a denied by [GlobalNetworkPolicy p] 0 0",
		},
		"one of several interfaces": {
			hosts: []model.HostEndpoint{
				{Name: "a", Node: "n2", Interface: "eth0", Allows: true}, {Name: "b", Node: "n2", Interface: "eth1", Allows: true},
			},
			from: "192.0.2.9", to: "192.0.2.2",
			want: "ingress of host endpoint a of node n2 may deny it: by which interface packets come in is not known",
		},
		"forwarded to a pod of another node": {
			hosts: []model.HostEndpoint{{Name: "all", Node: "n2", Interface: "*", Allows: true}}, forward: true,
			from: "shop/web", to: "shop/db",
			want: "egress of  allowed by [] 0 -1; ingress of  allowed by [] 0 -1; ingress of all denied by [GlobalNetworkPolicy p] 0 0",
		},
		"forwarded, by a tunnel or not": {
			hosts: []model.HostEndpoint{{Name: "a", Node: "n2", Interface: "eth0", Allows: true}}, forward: true,
			from: "shop/web", to: "shop/db",
			want: "egress of  allowed by [] 0 -1; ingress of  allowed by [] 0 -1; " +
				"ingress of host endpoint a of node n2 may deny it: by which interface packets come in is not known",
		},
		"the loopback": {
			hosts: []model.HostEndpoint{{Name: "all", Node: "n1", Interface: "*", Allows: true}}, from: "192.0.2.1", to: "192.0.2.1",
			want: "egress of all allowed by [] 0 -1; ingress of all denied by [GlobalNetworkPolicy p] 0 0",
		},
		"a template": {
			controller: model.HostEndpointController{Enabled: true, Templates: []model.HostEndpointTemplate{
				{Name: "wan", Nodes: expression("all()"), Interfaces: "eth.*", Labels: map[string]string{"host": "yes"}},
			}},
			from: "192.0.2.9", to: "192.0.2.2",
			want: `a host endpoint of node n2 by the template "wan" of Calico's controllers may deny it: its interfaces are known on that node only`,
		},
		"another node without host endpoint": {
			hosts: []model.HostEndpoint{{Name: "all", Node: "n1", Interface: "*", Allows: true}}, from: "192.0.2.9", to: "192.0.2.2",
		},
	} {
		t.Run(name, func(t *testing.T) {
			x := policy.New(policy.Config{Node: "n1"})
			for i, pod := range []string{"web", "db"} {
				node, own := fmt.Sprintf("n%d", i+1), addr(fmt.Sprintf("10.0.%d.1", i+1))
				x.SetNode(model.Node{Name: node, Addrs: []netip.Addr{addr(fmt.Sprintf("192.0.2.%d", i+1))}})
				x.SetPod(model.Pod{Namespace: "shop", Name: pod, UID: pod, Node: node, IPs: []netip.Addr{own}})
			}
			x.SetEndpoint(model.WorkloadEndpoint{
				Pod: model.PodRef{Namespace: "shop", Name: "web", UID: "web"}, Node: "n1", IfName: "eth0", HostLink: "cali1",
				HostEnd: model.HostEndRouted, Addrs: []netip.Addr{addr("10.0.1.1")},
			})
			for _, h := range c.hosts {
				h.Labels = map[string]string{"host": "yes"}
				x.Calico().SetHostEndpoint(h)
			}
			x.Calico().SetHostEndpointController(c.controller)
			x.SetPolicy(deny("p", "has(host)", c.forward))
			before := fmt.Sprint(x.Tables())
			answers, err := x.Why(policy.Query{From: party(c.from), To: party(c.to), Protocol: model.TCP, Port: 80})
			if err != nil || len(answers) != 1 {
				t.Fatal(answers, err)
			}
			if got := sidesText(answers[0]); got != c.want || answers[0].Allowed != (c.want == "") {
				t.Errorf("%t, %s", answers[0].Allowed, got)
			}
			if after := fmt.Sprint(x.Tables()); after != before {
				t.Errorf("a question has changed the tables from\n%s\nto\n%s", before, after)
			}
		})
	}
}
