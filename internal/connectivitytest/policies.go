// SPDX-License-Identifier: Apache-2.0

package connectivitytest

import (
	"context"
	"net/netip"

	"github.com/weft-net/weft/internal/cluster/store"
	"github.com/weft-net/weft/internal/connectivitytest/probe"
)

// policyCase is a policy, and what it lets pass. All other checks of the case expect silence.
type policyCase struct {
	name string
	// spec of the policies, each a policy of its own.
	specs []map[string]any
	// allow are the flows that pass, deny those that do not.
	allow, deny []flow
}

// flow is traffic between pods of the policies' namespace; "other" is a pod of another namespace.
type flow struct {
	from, to string
	port     uint16
	kinds    []probe.Kind
}

func testPolicies(ctx context.Context, s *Suite, r *recorder) error {
	namespace := s.namespace + policySuffix
	none := s.flows(flowsOf("client", "server"), false)
	none = append(none, s.flows(flowsOf("visitor", "server"), false)...)
	none = append(none, s.flows(flowsOf("other", "server"), false)...)
	r.expect(ctx, named("without a policy", none)...)
	for _, c := range s.policyCases() {
		for i, spec := range c.specs {
			name := []string{"first", "second"}[i]
			if err := s.create(ctx, store.NetworkPolicies(), policyManifest(namespace, name, spec)); err != nil {
				return err
			}
		}
		r.expect(ctx, named(c.name, append(s.flows(c.allow, false), s.flows(c.deny, true)...))...)
		for i := range c.specs {
			if err := s.remove(ctx, store.NetworkPolicies(), namespace, []string{"first", "second"}[i]); err != nil {
				return err
			}
		}
	}
	if err := s.testMatrix(ctx, r); err != nil {
		return err
	}
	r.expect(ctx, named("after all policies", none)...)
	return nil
}

// named puts the case before the names of checks.
func named(name string, checks []check) []check {
	out := make([]check, len(checks))
	for i, c := range checks {
		c.name = name + ": " + c.name
		out[i] = c
	}
	return out
}

// flowsOf is all that a pod sends to another.
func flowsOf(from, to string) []flow {
	return []flow{
		{
			from,
			to,
			serverPort,
			[]probe.Kind{probe.TCP, probe.UDP, probe.ICMP},
		},
		{from, to, secondPort, []probe.Kind{probe.TCP}},
	}
}

// flows returns the checks of flows.
func (f *fixture) flows(all []flow, deny bool) []check {
	var out []check
	for _, one := range all {
		to := f.podTarget(f.policyPod(one.to))
		to.port = one.port
		out = append(out, f.checks(f.policyPod(one.from), to, deny, one.kinds...)...)
	}
	return out
}

func (f *fixture) policyPod(name string) string {
	if name == "other" {
		return f.full("client-a")
	}
	return f.namespace + policySuffix + "/" + name
}

func selector(role string) map[string]any {
	return map[string]any{"matchLabels": map[string]string{roleLabel: role}}
}

func ingress(rules ...any) map[string]any {
	return map[string]any{
		"podSelector": selector("server"),
		"policyTypes": []string{"Ingress"},
		"ingress":     append([]any{}, rules...),
	}
}

func egress(rules ...any) map[string]any {
	return map[string]any{
		"podSelector": selector("client"),
		"policyTypes": []string{"Egress"},
		"egress":      append([]any{}, rules...),
	}
}

func from(peers ...any) map[string]any { return map[string]any{"from": peers} }

func to(peers ...any) map[string]any { return map[string]any{"to": peers} }

func pods(role string) map[string]any { return map[string]any{"podSelector": selector(role)} }

func port(protocol string, port any) map[string]any {
	return map[string]any{"protocol": protocol, "port": port}
}

func with(rule map[string]any, ports ...any) map[string]any {
	rule["ports"] = ports
	return rule
}

// blocks returns a peer for each address of a pod.
func (f *fixture) blocks(pod string, except bool) []any {
	var out []any
	for _, a := range f.addrs(f.policyPod(pod)) {
		one := netip.PrefixFrom(a, a.BitLen()).String()
		block := map[string]any{"cidr": one}
		if except {
			block = map[string]any{"cidr": "0.0.0.0/0", "except": []string{one}}
			if a.Is6() {
				block["cidr"] = "::/0"
			}
		}
		out = append(out, map[string]any{"ipBlock": block})
	}
	return out
}

func (f *fixture) policyCases() []policyCase {
	client, visitor, other := flowsOf("client", "server"), flowsOf("visitor", "server"), flowsOf("other", "server")
	tcp := []probe.Kind{probe.TCP}
	first := []flow{{"client", "server", serverPort, tcp}}
	notFirst := []flow{
		{"client", "server", serverPort, []probe.Kind{probe.UDP, probe.ICMP}},
		{"client", "server", secondPort, tcp},
	}
	back := flowsOf("server", "client")
	return []policyCase{
		{name: "deny all ingress", specs: []map[string]any{ingress()}, allow: back, deny: join(client, visitor, other)},
		{
			name: "ingress from a label", specs: []map[string]any{ingress(from(pods("client")))},
			allow: client, deny: join(visitor, other),
		},
		{
			name:  "ingress from all pods of the namespace",
			specs: []map[string]any{ingress(from(map[string]any{"podSelector": map[string]any{}}))},
			allow: join(client, visitor),
			deny:  other,
		},
		{
			name: "ingress from another namespace",
			specs: []map[string]any{
				ingress(
					from(map[string]any{"namespaceSelector": map[string]any{"matchLabels": map[string]string{"team": "other"}}}),
				),
			},
			allow: other,
			deny:  join(client, visitor),
		},
		{
			name: "ingress from an expression",
			specs: []map[string]any{ingress(from(map[string]any{"podSelector": map[string]any{"matchExpressions": []any{
				map[string]any{"key": roleLabel, "operator": "NotIn", "values": []string{"visitor"}},
			}}}))},
			allow: client, deny: join(visitor, other),
		},
		{
			name: "ingress to a port", specs: []map[string]any{ingress(with(from(pods("client")), port("TCP", serverPort)))},
			allow: first, deny: join(notFirst, visitor),
		},
		{
			name: "ingress to a named port", specs: []map[string]any{ingress(with(from(pods("client")), port("TCP", portName)))},
			allow: first, deny: join(notFirst, visitor),
		},
		{
			name: "ingress to a range of ports",
			specs: []map[string]any{ingress(with(from(pods("client")), map[string]any{
				"protocol": "TCP", "port": secondPort, "endPort": secondPort + 10,
			}))},
			allow: []flow{{"client", "server", secondPort, tcp}}, deny: join(first, visitor),
		},
		{
			name: "ingress from a CIDR", specs: []map[string]any{ingress(from(f.blocks("client", false)...))},
			allow: client, deny: join(visitor, other),
		},
		{
			name: "ingress from a CIDR with an exception", specs: []map[string]any{ingress(from(f.blocks("visitor", true)...))},
			allow: join(client, other), deny: visitor,
		},
		{
			name: "two policies", specs: []map[string]any{ingress(), ingress(from(pods("visitor")))},
			allow: visitor, deny: join(client, other),
		},
		{name: "deny all egress", specs: []map[string]any{egress()}, allow: join(back, visitor), deny: client},
		{
			name:  "egress to a label and port",
			specs: []map[string]any{egress(with(to(pods("server")), port("TCP", serverPort)))},
			allow: first,
			deny:  join(notFirst, flowsOf("client", "visitor")),
		},
		{
			name: "egress to a CIDR", specs: []map[string]any{egress(to(f.blocks("server", false)...))},
			allow: client, deny: flowsOf("client", "visitor"),
		},
	}
}

func join(all ...[]flow) (out []flow) {
	for _, f := range all {
		out = append(out, f...)
	}
	return out
}
