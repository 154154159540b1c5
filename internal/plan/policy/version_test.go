// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"net/netip"
	"testing"

	"github.com/weft-net/weft/internal/model"
)

// Each change that decisions or names can depend on changes the version, and a question does not.
func TestVersion(t *testing.T) {
	x := New(Config{Node: "node1"})
	key := model.PolicyKey{Kind: model.KindNetworkPolicy, Namespace: "a", Name: "p"}
	end := model.WorkloadEndpoint{
		Node: "node1", Pod: model.PodRef{Namespace: "a", Name: "b"}, IfName: "eth0", Addrs: []netip.Addr{netip.MustParseAddr("10.0.0.1")},
	}
	for _, c := range []struct {
		name   string
		change func()
	}{
		{"SetNamespace", func() { x.SetNamespace(model.Namespace{Name: "a"}) }},
		{"SetPod", func() { x.SetPod(model.Pod{Namespace: "a", Name: "b", Node: "node1"}) }},
		{"SetEndpoint", func() { x.SetEndpoint(end) }},
		{"SetPolicy", func() { x.SetPolicy(model.Policy{PolicyKey: key, Subject: model.PodPeer{Namespace: "a"}}) }},
		{"SetNode", func() { x.SetNode(model.Node{Name: "node2"}) }},
		{"SetTier", func() { x.Calico().SetTier(model.Tier{Name: "t"}) }},
		{"SetNetworkSet", func() { x.Calico().SetNetworkSet(model.NetworkSet{Name: "s"}) }},
		{"SetServiceAccount", func() {
			x.Calico().SetServiceAccount(model.ServiceAccount{Namespace: "a", Name: "s", Labels: map[string]string{"a": "b"}})
		}},
		{"SetEndpointSlice", func() { x.Calico().SetEndpointSlice(model.EndpointSlice{Namespace: "a", Name: "s", Service: "s"}) }},
		{"DelEndpointSlice", func() { x.Calico().DelEndpointSlice("a", "s") }},
		{"DelServiceAccount", func() { x.Calico().DelServiceAccount("a", "s") }},
		{"DelNetworkSet", func() { x.Calico().DelNetworkSet("", "s") }},
		{"DelTier", func() { x.Calico().DelTier("t") }},
		{"SetSelf", func() { x.SetSelf([]netip.Addr{netip.MustParseAddr("10.0.0.2")}) }},
		{"DelPolicy", func() { x.DelPolicy(key) }},
		{"DelEndpoint", func() { x.DelEndpoint(end.Key()) }},
		{"DelNode", func() { x.DelNode("node2") }},
		{"DelPod", func() { x.DelPod("a", "b") }},
		{"DelNamespace", func() { x.DelNamespace("a") }},
	} {
		before := x.Version()
		if c.change(); x.Version() == before {
			t.Errorf("%s does not change the version", c.name)
		}
		before = x.Version()
		x.Decide("", Flow{Src: end.Addrs[0], Dst: netip.MustParseAddr("10.0.0.9"), Protocol: model.TCP, DstPort: 80})
		x.Holder("", end.Addrs[0])
		if x.Version() != before {
			t.Errorf("a question after %s changes the version", c.name)
		}
	}
}
