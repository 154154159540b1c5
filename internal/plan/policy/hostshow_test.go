// SPDX-License-Identifier: Apache-2.0

package policy_test

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/plan/policy"
	"github.com/weft-net/weft/internal/plan/policy/hostendpoint"
)

// TestHostEndpoints: each host endpoint of the node is shown with its policies by stage, in order of evaluation, and with
// what becomes of packets for which no rule decides; those without effect with the reason.
func TestHostEndpoints(t *testing.T) {
	x := policy.New(policy.Config{Node: "n1"})
	expression := func(text string) model.Expression {
		e, err := model.ParseExpression(text)
		if err != nil {
			t.Fatal(err)
		}
		return e
	}
	set := func(name string, order float64, tier model.PolicyTier, scope model.HostScope, egress bool) {
		x.SetPolicy(model.Policy{
			PolicyKey: model.PolicyKey{Kind: model.KindGlobalNetworkPolicy, Name: name}, Tier: tier, Order: &order, Host: scope,
			Subject: model.PodPeer{Endpoints: &model.EndpointSelector{Labels: expression("has(host)")}},
			Ingress: model.PolicyDirection{On: true}, Egress: model.PolicyDirection{On: egress},
		})
	}
	x.Calico().SetTier(model.Tier{Name: "open", Order: new(1.0), Pass: true})
	set("b", 1, model.TierDefault, model.HostScope{}, false)
	set("a", 2, model.TierDefault, model.HostScope{}, false)
	set("first", 9, "open", model.HostScope{ApplyOnForward: true}, true)
	set("pre", 1, model.TierDefault, model.HostScope{ApplyOnForward: true, PreDNAT: true}, false)
	set("raw", 1, model.TierDefault, model.HostScope{ApplyOnForward: true, DoNotTrack: true}, true)
	host := map[string]string{"host": "yes"}
	x.Calico().SetInterfaces([]hostendpoint.Interface{{Name: "eth1", Addrs: []netip.Addr{netip.MustParseAddr("192.0.2.1")}}})
	for _, h := range []model.HostEndpoint{
		{Name: "all", Node: "n1", Interface: "*", Labels: host, Allows: true},
		{Name: "by-address", Node: "n1", Addrs: []netip.Addr{netip.MustParseAddr("192.0.2.1")}},
		{Name: "eth0", Node: "n1", Interface: "eth0", Labels: host},
		{Name: "eth0-again", Node: "n1", Interface: "eth0", Labels: host},
		{Name: "lost", Node: "n1", Addrs: []netip.Addr{netip.MustParseAddr("192.0.2.7")}},
		{Name: "other", Node: "n2", Interface: "eth0", Labels: host},
		{Name: "second-all", Node: "n1", Interface: "*"},
	} {
		x.Calico().SetHostEndpoint(h)
	}
	var got []string
	for _, v := range x.Calico().HostEndpoints() {
		got = append(got, strings.TrimSpace(fmt.Sprintf("%s at %s %s", v.Name, v.Interface, strings.Join(v.Faults, "; "))))
		for _, s := range v.Stages {
			var names []string
			for _, k := range s.Policies {
				names = append(names, k.Name)
			}
			got = append(got, fmt.Sprintf("  %s %s %v, %s: %s", s.Stage, s.Direction, names, s.Default, s.Why))
		}
	}
	want := []string{
		"all at * policies with doNotTrack have no effect on ingress at all interfaces: GlobalNetworkPolicy raw; " +
			"write the interface into spec.interfaceName; " +
			"policies with doNotTrack have no effect on egress at all interfaces: GlobalNetworkPolicy raw; " +
			"write the interface into spec.interfaceName",
		"  local ingress [first b a], Deny: end of tier default",
		"  local egress [first], Allow: profile",
		"  forward ingress [first], Allow: forwarded",
		"  forward egress [first], Allow: forwarded",
		"  preDNAT ingress [pre], Next: local or forward",
		"by-address at eth1",
		"  local ingress [], Deny: no profile allows it",
		"  local egress [], Deny: no profile allows it",
		"eth0 at eth0",
		"  local ingress [first b a], Deny: end of tier default",
		"  local egress [first], Deny: no profile allows it",
		"  forward ingress [first], Allow: forwarded",
		"  forward egress [first], Allow: forwarded",
		"  preDNAT ingress [pre], Next: local or forward",
		"  untracked ingress [raw], Next: preDNAT, local or forward",
		"  untracked egress [raw], Next: preDNAT, local or forward",
		"eth0-again at  interface eth0 is that of host endpoint eth0, the first by name",
		"lost at  no interface of the node has an address of expectedIPs that no other host endpoint has",
		"second-all at  interface * is that of host endpoint all, the first by name",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}
