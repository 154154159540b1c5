// SPDX-License-Identifier: Apache-2.0

package oracletest_test

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/weft-net/weft/internal/calico"
	"github.com/weft-net/weft/internal/cluster/store"
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/plan/policy"
	"github.com/weft-net/weft/internal/plan/policy/naive"
)

// TestLikeFelix has the verdicts of Felix where its rules are not what one expects of the objects.
func TestLikeFelix(t *testing.T) {
	at := func(text string) netip.Addr { return netip.MustParseAddr(text) }
	a, b, host := at("10.0.0.1"), at("10.0.0.2"), at("203.0.113.7")
	object := func(kind, name, namespace, labels, spec string) store.Object {
		meta := fmt.Sprintf(`{"name": %q, "labels": {%s}}`, name, labels)
		if namespace != "" {
			meta = fmt.Sprintf(`{"name": %q, "namespace": %q}`, name, namespace)
		}
		o, err := store.NewObject([]byte(fmt.Sprintf(`{"apiVersion": "projectcalico.org/v3", "kind": %q, "metadata": %s, "spec": %s}`, kind, meta, spec)))
		if err != nil {
			t.Fatal(err)
		}
		return o
	}
	for name, c := range map[string]struct {
		policies [][3]string // name, namespace, spec
		from, to netip.Addr
		port     uint16
		allowed  bool
	}{
		"names are compared with the slash behind them": {
			policies: [][3]string{
				{"web", "x", `{"ingress": [{"action": "Allow"}]}`}, {"web-deny", "x", `{"ingress": [{"action": "Deny"}]}`},
			},
			from: b, to: a, port: 80, allowed: false,
		},
		"notSelector leaves out endpoints, not their addresses": {
			policies: [][3]string{{"p", "", `{"selector": "app == 'a'", "ingress": [
				{"action": "Allow", "source": {"selector": "app == 'b'", "notSelector": "set == 'all'"}}]}`}},
			from: b, to: a, port: 80, allowed: true,
		},
		"notSelector alone leaves out addresses": {
			policies: [][3]string{{"p", "", `{"selector": "app == 'a'", "ingress": [{"action": "Allow", "source": {"notSelector": "set == 'all'"}}]}`}},
			from:     b, to: a, port: 80, allowed: false,
		},
		"a network set has no named ports": {
			policies: [][3]string{{"p", "", `{"selector": "app == 'a'", "ingress": [
				{"action": "Allow", "protocol": "TCP", "destination": {"selector": "set == 'all'", "ports": ["web"]}}]}`}},
			from: b, to: a, port: 80, allowed: false,
		},
		"a selected pod has": {
			policies: [][3]string{{"p", "", `{"selector": "app == 'a'", "ingress": [
				{"action": "Allow", "protocol": "TCP", "destination": {"selector": "app == 'a'", "ports": ["web"]}}]}`}},
			from: b, to: a, port: 80, allowed: true,
		},
		"a host endpoint has, for policies of a namespace, too": {
			policies: [][3]string{{"p", "x", `{"selector": "app == 'a'", "types": ["Egress"], "egress": [
				{"action": "Allow", "protocol": "TCP", "destination": {"ports": ["web"]}}]}`}},
			from: a, to: host, port: 8080, allowed: true,
		},
		"but not one outside of the namespace that a selector is limited to": {
			policies: [][3]string{{"p", "x", `{"selector": "app == 'a'", "types": ["Egress"], "egress": [
				{"action": "Allow", "protocol": "TCP", "destination": {"selector": "all()", "ports": ["web"]}}]}`}},
			from: a, to: host, port: 8080, allowed: false,
		},
	} {
		x := policy.New(policy.Config{Node: "n1"})
		learn(x, naive.World{Namespaces: map[string]map[string]string{"x": {}}, Pods: []naive.Pod{
			{
				Namespace: "x", Name: "a", Node: "n1", Labels: map[string]string{"app": "a"}, Addrs: map[string][]netip.Addr{"": {a}},
				Ports: []naive.PodPort{{Name: "web", Proto: "TCP", Port: 80}},
			},
			{Namespace: "x", Name: "b", Node: "n1", Labels: map[string]string{"app": "b"}, Addrs: map[string][]netip.Addr{"": {b}}},
		}})
		set, err := calico.NetworkSet(object("GlobalNetworkSet", "all", "", `"set": "all"`, `{"nets": ["10.0.0.0/24"]}`))
		if err != nil {
			t.Fatal(err)
		}
		x.Calico().SetNetworkSet(*set)
		h, err := calico.HostEndpoint(object("HostEndpoint", "h", "", "",
			fmt.Sprintf(`{"node": "n9", "interfaceName": "eth0", "expectedIPs": [%q], "profiles": ["projectcalico-default-allow"], "ports": [{"name": "web", "protocol": "TCP", "port": 8080}]}`, host)))
		if err != nil {
			t.Fatal(err)
		}
		x.Calico().SetHostEndpoint(*h)
		for _, p := range c.policies {
			kind := "GlobalNetworkPolicy"
			if p[1] != "" {
				kind = "NetworkPolicy"
			}
			one, err := calico.Policy(object(kind, p[0], p[1], "", p[2]))
			if err != nil || len(one.Errors) > 0 {
				t.Fatal(name, err, one.Errors)
			}
			x.SetPolicy(one)
		}
		answers, err := x.Why(policy.Query{
			From: policy.ConnectionEnd{Addr: c.from}, To: policy.ConnectionEnd{Addr: c.to}, Protocol: model.TCP, Port: c.port,
		})
		if err != nil || len(answers) != 1 || answers[0].Allowed != c.allowed {
			t.Errorf("%s: %+v, %v", name, answers, err)
		}
	}
	for spec, selects := range map[string]bool{
		`{"selector": "all()"}`: true,
		`{"selector": "all()", "namespaceSelector": "projectcalico.org/name != 'kube-system'"}`:     false,
		`{"namespaceSelector": "projectcalico.org/name != 'kube-system'"}`:                          true,
		`{"selector": "!has(app)", "namespaceSelector": "projectcalico.org/name != 'kube-system'"}`: true,
		`{"selector": "all()", "serviceAccountSelector": "level != 'high'"}`:                        false,
		`{"selector": "!has(app)", "serviceAccountSelector": "all()"}`:                              false,
	} {
		x := policy.New(policy.Config{Node: "n1"})
		x.Calico().SetHostEndpoint(model.HostEndpoint{Name: "h", Node: "n1", Interface: "*"})
		p, err := calico.Policy(object("GlobalNetworkPolicy", "p", "", "", spec))
		if err != nil {
			t.Fatal(err)
		}
		x.SetPolicy(p)
		if got := x.Calico().SelectsHosts(p.PolicyKey); got != selects {
			t.Errorf("%s selects host endpoints: %t", spec, got)
		}
	}
}
