// SPDX-License-Identifier: Apache-2.0

package calico_test

import (
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/weft-net/weft/internal/calico"
	"github.com/weft-net/weft/internal/cluster/store"
	"github.com/weft-net/weft/internal/model"
)

// policyOf decodes a GlobalNetworkPolicy, or with a namespace a NetworkPolicy, with that spec.
func policyOf(t *testing.T, group, namespace, spec string) (model.Policy, error) {
	t.Helper()
	kind, meta := "GlobalNetworkPolicy", "name: p"
	if namespace != "" {
		kind, meta = "NetworkPolicy", "name: p, namespace: "+namespace
	}
	raw, err := yaml.YAMLToJSON([]byte("apiVersion: " + group + "\nkind: " + kind + "\nmetadata: {" + meta + "}\nspec: {" + spec + "}\n"))
	if err != nil {
		t.Fatal(err)
	}
	o, err := store.NewObject(raw)
	if err != nil {
		t.Fatal(err)
	}
	return calico.Policy(o)
}

// TestInvalidRules: each invalid field is named with its value, and the rule fails closed: one that would allow matches
// nothing, one that would deny or pass denies everything.
func TestInvalidRules(t *testing.T) {
	for rule, want := range map[string]string{
		`action: Reject`:                                                                  `spec.ingress[0].action "Reject" is none of Allow, Deny, Log, Pass`,
		`action: Allow, ipVersion: 5`:                                                     `spec.ingress[0].ipVersion 5 is neither 4 nor 6`,
		`action: Allow, protocol: TPC`:                                                    `spec.ingress[0].protocol "TPC" is neither one of TCP, UDP, SCTP, UDPLite, ICMP, ICMPv6 nor a number from 1 to 255`,
		`action: Allow, notProtocol: 0`:                                                   `spec.ingress[0].notProtocol 0 is neither`,
		`action: Allow, icmp: {type: 8}`:                                                  `spec.ingress[0].icmp needs protocol ICMP or ICMPv6`,
		`action: Allow, protocol: ICMP, icmp: {code: 1}`:                                  `spec.ingress[0].icmp.code 1 is set without type`,
		`action: Allow, protocol: ICMP, notICMP: {type: 255}`:                             `spec.ingress[0].notICMP.type 255 is none from 0 to 254`,
		`action: Deny, protocol: ICMP, icmp: {type: 3, code: 256}`:                        `spec.ingress[0].icmp.code 256 is none from 0 to 255`,
		`action: Deny, source: {nets: [10.0.0.0/33]}`:                                     `spec.ingress[0].source.nets[0] "10.0.0.0/33" is no prefix like 10.0.0.0/8`,
		`action: Deny, destination: {notNets: ["::ffff:1.2.3.4"]}`:                        `spec.ingress[0].destination.notNets[0] "::ffff:1.2.3.4" is an IPv4-mapped IPv6 prefix`,
		`action: Allow, source: {selector: "a = 1"}`:                                      `spec.ingress[0].source.selector: selector "a = 1", character 3: unexpected character '='`,
		`action: Allow, source: {notSelector: "has("}`:                                    `spec.ingress[0].source.notSelector: `,
		`action: Allow, source: {namespaceSelector: "x"}`:                                 `spec.ingress[0].source.namespaceSelector: `,
		`action: Allow, source: {serviceAccounts: {selector: "x"}}`:                       `spec.ingress[0].source.serviceAccounts.selector: `,
		`action: Allow, destination: {ports: [80]}`:                                       `spec.ingress[0].destination.ports[0] 80 needs protocol TCP, UDP or SCTP`,
		`action: Allow, protocol: TCP, destination: {ports: [0]}`:                         `spec.ingress[0].destination.ports[0] 0 is neither a port from 1 to 65535 nor a range like 8080:8090`,
		`action: Allow, protocol: TCP, source: {notPorts: ["9:8"]}`:                       `spec.ingress[0].source.notPorts[0] "9:8" is neither`,
		`action: Allow, protocol: 47, destination: {ports: [web]}`:                        `spec.ingress[0].destination.ports[0] "web": the rule's protocol has no ports`,
		`action: Allow, http: {methods: [GET]}`:                                           `spec.ingress[0].http: a match of HTTP needs a proxy, and weft has none`,
		`action: Pass, source: {services: {name: x}}`:                                     `spec.ingress[0].source.services.namespace is missing: a GlobalNetworkPolicy has none of its own`,
		`action: Deny, source: {services: {namespace: x}}`:                                `spec.ingress[0].source.services.name is missing`,
		`action: Deny, destination: {services: {name: x, namespace: ns}}`:                 `spec.ingress[0].destination.services: a Service is matched as the source of ingress`,
		`action: Allow, source: {services: {name: x, namespace: ns}, nets: [10.0.0.0/8]}`: `spec.ingress[0].source.services is set together with nets, ports or selectors`,
		`action: Deny, source: {selectr: all()}`:                                          `unknown field "selectr"`,
		`action: Deny, sourc: {}`:                                                         `unknown field "sourc"`,
	} {
		p, err := policyOf(t, "projectcalico.org/v3", "", "ingress: [{"+rule+"}, {action: Allow}]")
		if err != nil {
			t.Errorf("%s: %v", rule, err)
			continue
		}
		if len(p.Errors) != 1 || !strings.Contains(p.Errors[0], want) {
			t.Errorf("%s: %q, want %q", rule, p.Errors, want)
		}
		if len(p.Ingress.Rules) != 2 || p.Ingress.Rules[1].Conditions == nil {
			t.Fatalf("%s: the other rule is lost: %+v", rule, p.Ingress.Rules)
		}
		r := p.Ingress.Rules[0]
		closed := r.Action == model.PolicyDeny && r.AnyPeer && r.AnyPort && r.Conditions == nil
		if strings.HasPrefix(rule, "action: Allow") {
			closed = r.Action == model.PolicyAccept && !r.AnyPeer && r.Conditions == nil
		}
		if !closed {
			t.Errorf("%s does not fail closed: %+v", rule, r)
		}
	}
}

// TestInvalidSubjects: a policy of which it is not known what it selects is an error.
func TestInvalidSubjects(t *testing.T) {
	for _, spec := range []string{`selector: "a = 1"`, `namespaceSelector: "("`, `serviceAccountSelector: "x"`, `order: soon`} {
		if p, err := policyOf(t, "projectcalico.org/v3", "", spec); err == nil {
			t.Errorf("%s: %+v", spec, p)
		}
	}
}

// TestTypes: which directions a policy governs if it does not say so. The stored objects of the CRDs' group govern both.
func TestTypes(t *testing.T) {
	const rule = "[{action: Allow}]"
	for _, c := range []struct {
		group, spec     string
		ingress, egress bool
	}{
		{"projectcalico.org/v3", "", true, false},
		{"projectcalico.org/v3", "egress: " + rule, false, true},
		{"projectcalico.org/v3", "ingress: " + rule + ", egress: " + rule, true, true},
		{"crd.projectcalico.org/v1", "egress: " + rule, true, true},
		{"crd.projectcalico.org/v1", "types: [Egress]", false, true},
	} {
		p, err := policyOf(t, c.group, "shop", c.spec)
		if err != nil || p.Ingress.On != c.ingress || p.Egress.On != c.egress {
			t.Errorf("%s {%s}: ingress %t, egress %t, %v", c.group, c.spec, p.Ingress.On, p.Egress.On, err)
		}
	}
}

// TestHostScope: what a GlobalNetworkPolicy is about at host endpoints.
func TestHostScope(t *testing.T) {
	for _, c := range []struct {
		spec            string
		want            model.HostScope
		ingress, egress bool
		fault           string
	}{
		{"applyOnForward: true", model.HostScope{ApplyOnForward: true}, true, true, ""},
		{"doNotTrack: true", model.HostScope{ApplyOnForward: true, DoNotTrack: true}, true, true, ""},
		{"preDNAT: true", model.HostScope{ApplyOnForward: true, PreDNAT: true}, true, false, ""},
		{"preDNAT: true, egress: [{action: Deny}]", model.HostScope{ApplyOnForward: true, PreDNAT: true}, true, false, "spec.egress is ignored"},
		{"preDNAT: true, doNotTrack: true", model.HostScope{ApplyOnForward: true, PreDNAT: true, DoNotTrack: true}, true, true, "both set"},
	} {
		p, err := policyOf(t, "crd.projectcalico.org/v1", "", c.spec)
		if err != nil || p.Host != c.want || p.Ingress.On != c.ingress || p.Egress.On != c.egress ||
			!strings.Contains(strings.Join(p.Errors, ";"), c.fault) || (c.fault == "") != (p.Errors == nil) {
			t.Errorf("{%s}: %+v, ingress %t, egress %t, %q, %v", c.spec, p.Host, p.Ingress.On, p.Egress.On, p.Errors, err)
		}
	}
}
