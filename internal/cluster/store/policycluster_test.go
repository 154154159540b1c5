// SPDX-License-Identifier: Apache-2.0

package store_test

import (
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/weft-net/weft/internal/cluster/store"
	"github.com/weft-net/weft/internal/model"
)

func clusterPolicy(t *testing.T, direction, rules string) model.Policy {
	t.Helper()
	p, err := policyOf(t, "policy.networking.k8s.io/v1alpha2", "ClusterNetworkPolicy",
		"spec: {tier: Admin, priority: 3, subject: {namespaces: {}}, "+direction+": ["+rules+"]}")
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestClusterNetworkPolicy(t *testing.T) {
	p := clusterPolicy(t, "egress", `
{name: one, action: Pass, to: [{pods: {namespaceSelector: {matchLabels: {a: b}}, podSelector: {matchLabels: {c: d}}}}, {namespaces: {}}, {nodes: {matchLabels: {e: f}}}, {networks: [10.0.0.0/8, "fd00::/8"]}],
 protocols: [{tcp: {destinationPort: {number: 80}}}, {udp: {destinationPort: {range: {start: 1, end: 9}}}}, {sctp: {}}, {destinationNamedPort: web}]},
{action: Deny, to: [{namespaces: {}}]}`)
	want := []model.PolicyRule{{
		Name: "one", Action: model.PolicyPass,
		Peers: []model.PolicyPeer{
			{
				Pods: &model.PodPeer{
					Namespaces: model.Selector{Labels: map[string]string{"a": "b"}},
					Pods:       model.Selector{Labels: map[string]string{"c": "d"}},
				},
			},
			{Pods: &model.PodPeer{}},
			{Nodes: &model.Selector{Labels: map[string]string{"e": "f"}}},
			{Block: &model.IPBlock{CIDR: netip.MustParsePrefix("10.0.0.0/8")}},
			{Block: &model.IPBlock{CIDR: netip.MustParsePrefix("fd00::/8")}},
		},
		Ports: []model.PolicyPort{
			{Protocol: model.TCP, First: 80, Last: 80},
			{Protocol: model.UDP, First: 1, Last: 9},
			{Protocol: model.SCTP},
			{Name: "web"},
		},
	}, {Action: model.PolicyDeny, Peers: []model.PolicyPeer{{Pods: &model.PodPeer{}}}, AnyPort: true}}
	if diff := cmp.Diff(want, p.Egress.Rules, cmpopts.EquateEmpty(), samePrefix()); diff != "" {
		t.Errorf("want (-), got (+):\n%s", diff)
	}
	if p.Ingress.On || !p.Egress.On || p.Priority != 3 || p.Tier != model.TierAdmin || len(p.Errors) > 0 {
		t.Errorf("%+v", p)
	}
}

// A rule that cannot be understood fails closed: one that accepts is true of nothing, the others deny everything.
func TestClusterNetworkPolicyFaults(t *testing.T) {
	const nothing, everything = "nothing", "deny"
	for _, c := range []struct{ direction, rule, becomes, fault string }{
		{
			"ingress", `{action: Accept, from: [{}, {namespaces: {}}]}`, nothing,
			"spec.ingress[0].from[0] has no peer that is understood",
		},
		{
			"ingress", `{action: Deny, from: [{new: {}}]}`, everything, `spec.ingress[0].from[0]: field "new" is not known`,
		},
		{
			"ingress", `{action: Accept, from: [{namespaces: {}}], ports: [{tcp: {}}]}`, nothing,
			`spec.ingress[0]: field "ports" is not known`,
		},
		{
			"ingress", `{action: Deny, from: [{namespaces: {}}], ports: [{tcp: {}}]}`, everything,
			`spec.ingress[0]: field "ports" is not known`,
		},
		{
			"ingress", `{action: Accept, from: [{namespaces: {}}], to: [{namespaces: {}}]}`, nothing,
			`spec.ingress[0]: field "to" is not known: here it is "from"`,
		},
		{
			"egress", `{action: Accept, to: [{pods: {podSelector: {}, nameSelector: {}}}]}`, nothing,
			`spec.egress[0].to[0]: field "nameSelector" is not known`,
		},
		{
			"egress", `{action: Accept, to: [{namespaces: {}}], protocols: [{tcp: {destinationPorts: {number: 80}}}]}`, nothing,
			`spec.egress[0].protocols[0]: field "destinationPorts" is not known`,
		},
		{
			"ingress", `{action: Pass, from: [{networks: [10.0.0.0/8]}]}`, everything,
			"spec.ingress[0].from[0] has no peer that is understood",
		},
		{"ingress", `{action: Pass}`, everything, "spec.ingress[0].from is missing or empty"},
		{
			"ingress", `{action: Reject, from: [{namespaces: {}}]}`, everything,
			`spec.ingress[0].action "Reject" is none of Accept, Deny, Pass`,
		},
		{
			"ingress", `{action: 7}`, everything,
			"spec.ingress[0]: json: cannot unmarshal number into Go struct field .action of type string",
		},
		{
			"egress", `{action: Accept, to: [{domainNames: ["*.example.com"]}]}`, nothing,
			`spec.egress[0].to[0].domainNames ["*.example.com"]: names of domains are not understood`,
		},
		{
			"egress", `{action: Deny, to: [{networks: [10.0.0.0/33]}]}`, everything,
			`spec.egress[0].to[0].networks[0] "10.0.0.0/33" is no prefix like 10.0.0.0/8`,
		},
		{
			"egress", `{action: Accept, to: [{namespaces: {}}], protocols: [{icmp: {}}]}`, nothing,
			`spec.egress[0].protocols[0]: field "icmp" is not known`,
		},
		{
			"egress", `{action: Accept, to: [{namespaces: {}}], protocols: [{}]}`, nothing,
			"spec.egress[0].protocols[0] has no protocol that is understood",
		},
		{
			"egress", `{action: Accept, to: [{namespaces: {}}], protocols: [{tcp: {destinationPort: {}}}]}`, nothing,
			"spec.egress[0].protocols[0].tcp.destinationPort has neither number nor range",
		},
		{
			"egress",
			`{action: Accept, to: [{namespaces: {}}], protocols: [{udp: {destinationPort: {range: {start: 9, end: 2}}}}]}`,
			nothing, "spec.egress[0].protocols[0].udp.destinationPort.range.start 9: the range ends at 2, want 9 to 65535",
		},
	} {
		p := clusterPolicy(t, c.direction, c.rule)
		rules := p.Ingress.Rules
		if c.direction == "egress" {
			rules = p.Egress.Rules
		}
		want := model.PolicyRule{Action: model.PolicyAccept}
		if c.becomes == everything {
			want = model.PolicyRule{Action: model.PolicyDeny, AnyPeer: true, AnyPort: true}
		}
		if diff := cmp.Diff([]model.PolicyRule{want}, rules) + cmp.Diff([]string{c.fault}, p.Errors); diff != "" {
			t.Errorf("%s: want (-), got (+):\n%s", c.rule, diff)
		}
	}
}

// Ports are a pod's by the names that its containers give them; of containers that only prepare the others they are
// not.
func TestPodPorts(t *testing.T) {
	o, err := store.NewObject([]byte(`{"apiVersion":"v1","kind":"Pod","metadata":{"name":"p"},"spec":{
		"containers":[{"ports":[{"name":"web","containerPort":80},{"containerPort":81}]},{"ports":[{"name":"dns","protocol":"UDP","containerPort":53}]}],
		"initContainers":[{"ports":[{"name":"no","containerPort":1}]},{"restartPolicy":"Always","ports":[{"name":"side","protocol":"SCTP","containerPort":2}]}]}}`))
	if err != nil {
		t.Fatal(err)
	}
	p, err := o.Pod()
	want := []model.PodPort{
		{Name: "web", Protocol: model.TCP, Number: 80},
		{Name: "dns", Protocol: model.UDP, Number: 53},
		{Name: "side", Protocol: model.SCTP, Number: 2},
	}
	if diff := cmp.Diff(want, p.Ports); err != nil || diff != "" {
		t.Errorf("%v\n%s", err, diff)
	}
}

func FuzzPolicy(f *testing.F) {
	for _, kind := range []string{
		"networking.k8s.io/v1 NetworkPolicy", "policy.networking.k8s.io/v1alpha2 ClusterNetworkPolicy",
		"k8s.cni.cncf.io/v1beta1 MultiNetworkPolicy",
	} {
		f.Add(kind, `{"podSelector":{},"ingress":[{"from":[{"podSelector":{}}],"ports":[{"port":80}]}]}`)
		f.Add(
			kind,
			`{"tier":"Admin","priority":1,"subject":{"namespaces":{}},"egress":[{"action":"Deny","to":[{"networks":["10.0.0.0/8"]}]}]}`,
		)
		f.Add(kind, `{"ingress":[null,{"from":[null],"ports":[null]}],"podSelector":null}`)
	}
	f.Fuzz(func(t *testing.T, kind, spec string) {
		version, name := kind, ""
		for i := range kind {
			if kind[i] == ' ' {
				version, name = kind[:i], kind[i+1:]
			}
		}
		o, err := store.NewObject(
			[]byte(`{"apiVersion":"` + version + `","kind":"` + name +
				`","metadata":{"name":"p","namespace":"n"},"spec":` + spec + `}`),
		)
		if err != nil {
			return
		}
		p, err := o.Policy()
		if err != nil {
			return
		}
		for _, r := range append(p.Ingress.Rules, p.Egress.Rules...) {
			for _, port := range r.Ports {
				if port.Last < port.First {
					t.Errorf("port %+v", port)
				}
			}
			for _, peer := range r.Peers {
				if peer.Pods == nil && peer.Block == nil && peer.Nodes == nil ||
					peer.Block != nil && peer.Block.CIDR != peer.Block.CIDR.Masked() {
					t.Errorf("peer %+v", peer)
				}
			}
		}
	})
}
