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
		var got []string
		for _, s := range answers[0].Sides {
			got = append(got, fmt.Sprintf("%s of %s %s by %v 0 %d", s.Direction, s.HostEndpoint,
				map[bool]string{true: "allowed", false: "denied"}[s.Allowed], s.Decided, s.Rule))
		}
		denied := slices.ContainsFunc(answers[0].Sides, func(s policy.Side) bool { return !s.Allowed })
		if text := strings.Join(got, "; "); text != c.want || answers[0].Allowed == denied {
			t.Errorf("%s to %s:%s: %t, %s, not %s", c.from, c.to, c.port, answers[0].Allowed, text, c.want)
		}
	}
}
