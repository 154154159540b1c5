// SPDX-License-Identifier: Apache-2.0

package store_test

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"sigs.k8s.io/yaml"

	"github.com/weft-net/weft/internal/cluster/store"
	"github.com/weft-net/weft/internal/model"
)

// policyOf reads a policy of the kind; rest is YAML below the metadata's name.
func policyOf(t testing.TB, apiVersion, kind, rest string) (model.Policy, error) {
	t.Helper()
	namespace := "namespace: shop, "
	if kind == "ClusterNetworkPolicy" {
		namespace = ""
	}
	if !strings.Contains(rest, "metadata:") {
		rest = fmt.Sprintf("metadata: {%sname: p}\n%s", namespace, rest)
	}
	raw, err := yaml.YAMLToJSON([]byte(fmt.Sprintf("apiVersion: %s\nkind: %s\n%s", apiVersion, kind, rest)))
	if err != nil {
		t.Fatal(err)
	}
	o, err := store.NewObject(raw)
	if err != nil {
		t.Fatal(err)
	}
	return o.Policy()
}

func samePrefix() cmp.Option { return cmp.Comparer(func(a, b netip.Prefix) bool { return a == b }) }

func TestNetworkPolicy(t *testing.T) {
	got, err := policyOf(t, "networking.k8s.io/v1", "NetworkPolicy", `
spec:
  podSelector: {matchLabels: {app: web}}
  ingress:
  - from:
    - podSelector: {matchExpressions: [{key: tier, operator: In, values: [a, b]}]}
    - namespaceSelector: {}
    - namespaceSelector: {matchLabels: {team: x}}
      podSelector: {}
    - ipBlock: {cidr: 10.1.2.3/8, except: [10.1.0.0/16]}
    - ipBlock: {cidr: "fd00::/8"}
    ports:
    - {port: 80}
    - {protocol: UDP, port: 5000, endPort: 5010}
    - {protocol: SCTP}
    - {port: http}
  - {}
  egress:
  - to: []
    ports: [{protocol: TCP}]
`)
	if err != nil {
		t.Fatal(err)
	}
	in := func(ns string, s model.Selector) model.PolicyPeer {
		return model.PolicyPeer{Pods: &model.PodPeer{Namespace: ns, Pods: s}}
	}
	want := model.Policy{
		PolicyKey: model.PolicyKey{Kind: model.KindNetworkPolicy, Namespace: "shop", Name: "p"},
		Subject:   model.PodPeer{Namespace: "shop", Pods: model.Selector{Labels: map[string]string{"app": "web"}}},
		Ingress: model.PolicyDirection{On: true, Rules: []model.PolicyRule{{
			Action: model.PolicyAccept,
			Peers: []model.PolicyPeer{
				in("shop", model.Selector{
					Requirements: []model.SelectorRequirement{{Key: "tier", Op: model.SelectIn, Values: []string{"a", "b"}}},
				}),
				in("", model.Selector{}),
				{Pods: &model.PodPeer{Namespaces: model.Selector{Labels: map[string]string{"team": "x"}}}},
				{
					Block: &model.IPBlock{
						CIDR: netip.MustParsePrefix("10.0.0.0/8"), Except: []netip.Prefix{netip.MustParsePrefix("10.1.0.0/16")},
					},
				},
				{Block: &model.IPBlock{CIDR: netip.MustParsePrefix("fd00::/8")}},
			},
			Ports: []model.PolicyPort{
				{Protocol: model.TCP, First: 80, Last: 80},
				{Protocol: model.UDP, First: 5000, Last: 5010},
				{Protocol: model.SCTP},
				{Protocol: model.TCP, Name: "http"},
			},
		}, {Action: model.PolicyAccept, AnyPeer: true, AnyPort: true}}},
		Egress: model.PolicyDirection{
			On: true, Rules: []model.PolicyRule{
				{Action: model.PolicyAccept, AnyPeer: true, Ports: []model.PolicyPort{{Protocol: model.TCP}}},
			},
		},
	}
	if diff := cmp.Diff(want, got, cmpopts.EquateEmpty(), samePrefix()); diff != "" {
		t.Errorf("want (-), got (+):\n%s", diff)
	}
}

// A policy isolates by its types or, without types, ingress, and egress if it has egress rules.
func TestPolicyTypes(t *testing.T) {
	for spec, want := range map[string][2]bool{
		`{podSelector: {}}`:                                             {true, false},
		`{podSelector: {}, egress: [{}]}`:                               {true, true},
		`{podSelector: {}, egress: []}`:                                 {true, false},
		`{podSelector: {}, policyTypes: [Egress]}`:                      {false, true},
		`{podSelector: {}, policyTypes: [Egress], ingress: [{}]}`:       {false, true},
		`{podSelector: {}, policyTypes: [Ingress], egress: [{}]}`:       {true, false},
		`{podSelector: {}, policyTypes: [Ingress, Egress], egress: []}`: {true, true},
	} {
		p, err := policyOf(t, "networking.k8s.io/v1", "NetworkPolicy", "spec: "+spec)
		if err != nil || p.Ingress.On != want[0] || p.Egress.On != want[1] {
			t.Errorf("%s: ingress %v, egress %v, %v; want %v", spec, p.Ingress.On, p.Egress.On, err, want)
		}
	}
}

// An invalid part of a rule is reported and does not affect the rest; it never makes a rule wider.
func TestNetworkPolicyFaults(t *testing.T) {
	for rule, want := range map[string]string{
		`{from: [{ipBlock: {cidr: 10.0.0/8}}]}`:                         `spec.ingress[0].from[0].ipBlock.cidr "10.0.0/8" is no prefix like 10.0.0.0/8`,
		`{from: [{ipBlock: {cidr: 10.0.0.0/8, except: [11.0.0.0/9]}}]}`: `spec.ingress[0].from[0].ipBlock.except[0] "11.0.0.0/9" is not inside of 10.0.0.0/8`,
		`{from: [{ipBlock: {cidr: 10.0.0.0/8, except: ["fd00::/9"]}}]}`: `spec.ingress[0].from[0].ipBlock.except[0] "fd00::/9" is not inside of 10.0.0.0/8`,
		`{from: [{ipBlock: {cidr: "::ffff:10.0.0.0/90"}}]}`:             `spec.ingress[0].from[0].ipBlock.cidr "::ffff:10.0.0.0/90" is an IPv4-mapped IPv6 prefix`,
		`{from: [{ipBlock: {cidr: 10.0.0.0/8}, podSelector: {}}]}`:      `spec.ingress[0].from[0] has both ipBlock and a selector: only one of them is allowed`,
		`{from: [{}]}`:                `spec.ingress[0].from[0] has neither podSelector nor namespaceSelector nor ipBlock`,
		`{from: [{fooSelector: {}}]}`: `spec.ingress[0].from[0]: field "fooSelector" is not known`,
		// Misspelled or of a later API: without the field each would allow more than is meant.
		`{form: [{podSelector: {}}]}`:                                                            `spec.ingress[0]: field "form" is not known`,
		`{to: [{podSelector: {}}]}`:                                                              `spec.ingress[0]: field "to" is not known: here it is "from"`,
		`{port: [{port: 80}]}`:                                                                   `spec.ingress[0]: field "port" is not known`,
		`{from: [{podSelector: {matchLabel: {a: b}}}]}`:                                          `spec.ingress[0].from[0].podSelector: field "matchLabel" is not known`,
		`{from: [{podSelector: {}, nameSpaceSelector2: {}}]}`:                                    `spec.ingress[0].from[0]: field "nameSpaceSelector2" is not known`,
		`{from: [{ipBlock: {cidr: 10.0.0.0/8, expect: [10.1.0.0/16]}}]}`:                         `spec.ingress[0].from[0]: field "expect" is not known`,
		`{ports: [{protocol: TCP, ports: 80}]}`:                                                  `spec.ingress[0].ports[0]: field "ports" is not known`,
		`{from: [{podSelector: {matchExpressions: [{key: a, operator: Is}]}}]}`:                  `spec.ingress[0].from[0].podSelector.matchExpressions[0].operator "Is" is none of In, NotIn, Exists, DoesNotExist`,
		`{from: [{podSelector: {matchExpressions: [{key: a, operator: In}]}}]}`:                  `spec.ingress[0].from[0].podSelector.matchExpressions[0]: operator In needs values`,
		`{from: [{podSelector: {matchExpressions: [{key: a, operator: Exists, values: [b]}]}}]}`: `spec.ingress[0].from[0].podSelector.matchExpressions[0]: operator Exists takes no values`,
		`{from: [{podSelector: {matchExpressions: [{operator: Exists}]}}]}`:                      `spec.ingress[0].from[0].podSelector.matchExpressions[0].key is missing`,
		`{ports: [{protocol: ICMP}]}`:                                                            `spec.ingress[0].ports[0].protocol "ICMP" is none of TCP, UDP, SCTP`,
		`{ports: [{port: 0}]}`:                                                                   `spec.ingress[0].ports[0].port 0 is no port from 1 to 65535`,
		`{ports: [{port: 70000}]}`:                                                               `spec.ingress[0].ports[0].port 70000 is no port from 1 to 65535`,
		`{ports: [{port: 80, endPort: 79}]}`:                                                     `spec.ingress[0].ports[0].port 80: the range ends at 79, want 80 to 65535`,
		`{ports: [{endPort: 79}]}`:                                                               `spec.ingress[0].ports[0].endPort 79 is set without port`,
		`{ports: [{port: web, endPort: 79}]}`:                                                    `spec.ingress[0].ports[0].endPort 79 is set with a port by name, "web"`,
		`{ports: [{port: "80"}]}`:                                                                `spec.ingress[0].ports[0].port "80": a port's name has at most 15 lower case letters, digits and '-', among them a letter`,
		`{ports: [{port: 1.5}]}`:                                                                 `spec.ingress[0].ports[0].port 1.5 is neither a number nor a name`,
	} {
		p, err := policyOf(t, "networking.k8s.io/v1", "NetworkPolicy", "spec: {podSelector: {}, ingress: ["+rule+", {}]}")
		if err != nil {
			t.Errorf("%s: %v", rule, err)
			continue
		}
		if diff := cmp.Diff([]string{want}, p.Errors); diff != "" {
			t.Errorf("%s: want (-), got (+):\n%s", rule, diff)
		}
		if r := p.Ingress.Rules; len(r) != 2 || len(r[0].Peers)+len(r[0].Ports) != 0 || r[0].AnyPeer && r[0].AnyPort ||
			!r[1].AnyPeer {
			t.Errorf("%s: became %+v", rule, r)
		}
	}
}

// A field that the spec does not have is a fault, and the rest is in force.
func TestUnknownFieldOfASpec(t *testing.T) {
	const want = `spec: field "policyType" is not known`
	p, err := policyOf(t, "networking.k8s.io/v1", "NetworkPolicy", "spec: {podSelector: {}, policyType: [Egress]}")
	if err != nil || !p.Ingress.On || p.Egress.On || len(p.Errors) != 1 || p.Errors[0] != want {
		t.Errorf("%+v, %v; want the fault %s", p, err, want)
	}
}

// What a policy is about must be known: these are not enforced, and say why.
func TestPoliciesThatAreNone(t *testing.T) {
	const np, cnp, mnp = "networking.k8s.io/v1 NetworkPolicy", "policy.networking.k8s.io/v1alpha2 ClusterNetworkPolicy",
		"k8s.cni.cncf.io/v1beta1 MultiNetworkPolicy"
	const named = `name the networks, for example "k8s.v1.cni.cncf.io/policy-for: net1, other-namespace/net2"`
	for _, c := range []struct{ kind, rest, want string }{
		{
			np, `spec: {podSelector: {matchExpressions: [{key: a, operator: Is}]}}`,
			"NetworkPolicy shop/p: spec.podSelector.matchExpressions[0].operator \"Is\" is none of In, NotIn, Exists, DoesNotExist (compare with `kubectl explain networkpolicy.spec`)",
		},
		{
			np, `spec: {podSelector: {matchLabel: {a: b}}}`,
			"NetworkPolicy shop/p: spec.podSelector: field \"matchLabel\" is not known (compare with `kubectl explain networkpolicy.spec`)",
		},
		{
			mnp, `spec: {podSelector: {}}`,
			"MultiNetworkPolicy shop/p: annotation k8s.v1.cni.cncf.io/policy-for is missing: the policy is about no network (" +
				named + ")",
		},
		{
			mnp,
			"metadata: {name: p, namespace: shop, annotations: {k8s.v1.cni.cncf.io/policy-for: a/b/c}}\nspec: {podSelector: {}}",
			"MultiNetworkPolicy shop/p: annotation k8s.v1.cni.cncf.io/policy-for: \"a/b/c\" names no network (" + named + ")",
		},
		{
			cnp, `spec: {tier: Top, priority: 1, subject: {namespaces: {}}}`,
			`ClusterNetworkPolicy p: spec.tier "Top" cannot be used (write Admin or Baseline)`,
		},
		{
			cnp, `spec: {tier: Admin, subject: {namespaces: {}}}`,
			`ClusterNetworkPolicy p: spec.priority is missing (write a number from 0 to 1000)`,
		},
		{
			cnp, `spec: {tier: Admin, priority: 1001, subject: {namespaces: {}}}`,
			`ClusterNetworkPolicy p: spec.priority 1001 cannot be used (write a number from 0 to 1000)`,
		},
		{
			cnp, `spec: {tier: Admin, priority: 1, subject: {namespaces: {}, pod: {}}}`,
			"ClusterNetworkPolicy p: spec.subject: field \"pod\" is not known (compare with `kubectl explain clusternetworkpolicy.spec`)",
		},
		{
			cnp, `spec: {tier: Admin, priority: 1, subject: {}}`,
			"ClusterNetworkPolicy p: spec.subject has neither namespaces nor pods (compare with `kubectl explain clusternetworkpolicy.spec`)",
		},
		{
			cnp, `spec: {tier: Admin, priority: 1, subject: {namespaces: {}, pods: {podSelector: {}}}}`,
			"ClusterNetworkPolicy p: spec.subject has both namespaces and pods: only one of them is allowed (compare with `kubectl explain clusternetworkpolicy.spec`)",
		},
	} {
		version, kind, _ := strings.Cut(c.kind, " ")
		if _, err := policyOf(t, version, kind, c.rest); err == nil || err.Error() != c.want {
			t.Errorf("%s %s:\ngot  %v\nwant %s", c.kind, c.rest, err, c.want)
		}
	}
}

func TestMultiNetworkPolicy(t *testing.T) {
	p, err := policyOf(t, "k8s.cni.cncf.io/v1beta2", "MultiNetworkPolicy",
		"metadata: {name: p, namespace: shop, annotations: {k8s.v1.cni.cncf.io/policy-for: 'net1, other/net2,'}}\nspec: {podSelector: {}, policyTypes: [Egress]}")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"shop/net1", "other/net2"}, p.Networks); diff != "" || p.Ingress.On || !p.Egress.On {
		t.Errorf("%+v\n%s", p, diff)
	}
}
