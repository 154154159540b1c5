// SPDX-License-Identifier: Apache-2.0

package policy_test

import (
	"net/netip"
	"testing"

	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/plan/policy"
)

// A flow of another protocol is decided by its number, and one with a rule about the source's port by that: observers ask
// for each of them.
func TestCalicoFlows(t *testing.T) {
	x := policy.New(policy.Config{Node: "n1"})
	x.SetNamespace(model.Namespace{Name: "shop"})
	web := model.Pod{Namespace: "shop", Name: "web", UID: "u", Node: "n1", IPs: []netip.Addr{netip.MustParseAddr("10.0.0.1")}}
	x.SetPod(web)
	x.SetEndpoint(model.WorkloadEndpoint{
		Pod: model.PodRef{Namespace: "shop", Name: "web", UID: "u"}, Node: "n1", IfName: "eth0", HostLink: "cali-web", Addrs: web.IPs,
		HostEnd: model.HostEndRouted,
	})
	const gre = 47
	x.SetPolicy(model.Policy{
		PolicyKey: model.PolicyKey{Kind: model.KindGlobalNetworkPolicy, Name: "p"}, Tier: model.TierDefault,
		Subject: model.PodPeer{Endpoints: &model.EndpointSelector{}},
		Ingress: model.PolicyDirection{On: true, Rules: []model.PolicyRule{
			{Action: model.PolicyAccept, Conditions: &model.RuleConditions{Protocol: gre}},
			{Action: model.PolicyAccept, Conditions: &model.RuleConditions{
				Protocol: model.NumberTCP, Source: model.EndConditions{Ports: []model.PolicyPort{{Protocol: model.TCP, First: 1000, Last: 2000}}},
			}},
		}},
	})
	from, to := netip.MustParseAddr("10.0.0.9"), web.IPs[0]
	for _, c := range []struct {
		flow policy.Flow
		want bool
	}{
		{policy.Flow{Src: from, Dst: to, Number: gre}, true}, {policy.Flow{Src: from, Dst: to, Number: 50}, false},
		{policy.Flow{Src: from, Dst: to}, false}, // ping
		{policy.Flow{Src: from, Dst: to, Protocol: model.TCP, SrcPort: 1500, DstPort: 80}, true},
		{policy.Flow{Src: from, Dst: to, Protocol: model.TCP, SrcPort: 2500, DstPort: 80}, false},
		{policy.Flow{Src: from, Dst: to, Protocol: model.TCP, DstPort: 80}, false}, // an ephemeral port
	} {
		if got := x.Allowed(policy.EnforcementPoint{}, c.flow); got != c.want {
			t.Errorf("%+v: allowed %t", c.flow, got)
		}
		if sides := x.Decide("", c.flow); len(sides) != 1 || !sides[0].BySourcePort || sides[0].Allowed != c.want {
			t.Errorf("%+v: %+v", c.flow, sides)
		}
	}
}
