// SPDX-License-Identifier: Apache-2.0

package connectivitytest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"

	"github.com/weft-net/weft/internal/cluster/store"
	"github.com/weft-net/weft/internal/connectivitytest/probe"
)

// mostPolicies are those of one round of random policies.
const mostPolicies = 3

// randomPolicy is a NetworkPolicy of the policies' namespace, as its words are defined, not as weft compiles them.
type randomPolicy struct {
	selects         []string     // roles; empty: all pods of the namespace
	ingress, egress []randomRule // nil: not of that direction
}

// randomRule allows traffic with any of its peers, to any of its ports; none stands for all.
type randomRule struct {
	peers []randomPeer
	ports []randomPort
}

// randomPeer are pods by their labels, or addresses.
type randomPeer struct {
	team  string   // of another or the own namespace; empty: the own one, by its absence
	roles []string // empty: all pods
	// block is the pod with the addresses of an ipBlock; except: all addresses but its.
	block  string
	except bool
}

// randomPort is a port or a range of them.
type randomPort struct {
	protocol   string
	first, end int
	named      bool
}

// matrixPod is a pod as policies see it.
type matrixPod struct{ name, role, team string }

// matrixPods are the pods between which random policies are tested.
func matrixPods() []matrixPod {
	return []matrixPod{
		{"client", "client", "own"}, {"visitor", "visitor", "own"}, {"server", "server", "own"}, {"other", "client", "other"},
	}
}

// pick draws one of the values.
func pick[T any](r *rand.Rand, values ...T) T { return values[r.IntN(len(values))] }

func drawPolicy(r *rand.Rand) randomPolicy {
	p := randomPolicy{selects: pick(r, nil, []string{"server"}, []string{"client", "server"})}
	direction := r.IntN(3)
	rules := func() []randomRule {
		out := []randomRule{}
		for range r.IntN(3) {
			out = append(out, drawRule(r))
		}
		return out
	}
	if direction != 1 {
		p.ingress = rules()
	}
	if direction != 0 {
		p.egress = rules()
	}
	return p
}

func drawRule(r *rand.Rand) randomRule {
	var out randomRule
	for range r.IntN(3) {
		peer := randomPeer{roles: pick(r, nil, []string{"client"}, []string{"visitor"}, []string{"client", "server"})}
		switch r.IntN(4) {
		case 0:
			peer = randomPeer{block: pick(r, matrixPods()...).name, except: r.IntN(2) == 0}
		case 1:
			peer.team = pick(r, "own", "other")
		}
		out.peers = append(out.peers, peer)
	}
	for range r.IntN(3) {
		out.ports = append(out.ports, pick(r,
			randomPort{protocol: "TCP", first: serverPort, named: true}, randomPort{protocol: "UDP", first: serverPort},
			randomPort{protocol: "TCP", first: secondPort}, randomPort{protocol: "TCP", first: 1, end: serverPort},
		))
	}
	return out
}

// covers reports whether a list of roles stands for a pod's.
func covers(roles []string, role string) bool { return len(roles) == 0 || slices.Contains(roles, role) }

func (p randomPeer) is(pod matrixPod) bool {
	switch {
	case p.block != "":
		return (p.block == pod.name) != p.except
	case p.team != "":
		return p.team == pod.team && covers(p.roles, pod.role)
	}
	return pod.team == "own" && covers(p.roles, pod.role)
}

func (p randomPort) is(kind probe.Kind, port int) bool {
	if p.protocol != map[probe.Kind]string{probe.TCP: "TCP", probe.UDP: "UDP"}[kind] {
		return false
	}
	return p.first == port || p.first <= port && port <= p.end
}

// allows reports whether one of the rules allows traffic.
func allows(rules []randomRule, peer matrixPod, kind probe.Kind, port int) bool {
	return slices.ContainsFunc(rules, func(rule randomRule) bool {
		with := len(rule.peers) == 0 || slices.ContainsFunc(rule.peers, func(p randomPeer) bool { return p.is(peer) })
		to := len(rule.ports) == 0 || slices.ContainsFunc(rule.ports, func(p randomPort) bool { return p.is(kind, port) })
		return with && to
	})
}

// allowed reports whether the policies let a pod's traffic to another pass: at both ends, no policy of the direction
// selects the pod, or one that does allows it.
func allowed(all []randomPolicy, from, to matrixPod, kind probe.Kind, port int) bool {
	side := func(pod, peer matrixPod, rules func(randomPolicy) []randomRule) bool {
		isolated := false
		for _, p := range all {
			if pod.team != "own" || rules(p) == nil || !covers(p.selects, pod.role) {
				continue
			}
			if isolated = true; allows(rules(p), peer, kind, port) {
				return true
			}
		}
		return !isolated
	}
	return side(from, to, func(p randomPolicy) []randomRule { return p.egress }) &&
		side(to, from, func(p randomPolicy) []randomRule { return p.ingress })
}

// rolesSelector selects pods by their roles.
func rolesSelector(roles []string) map[string]any {
	if len(roles) == 0 {
		return map[string]any{}
	}
	return map[string]any{"matchExpressions": []any{
		map[string]any{"key": roleLabel, "operator": "In", "values": roles},
	}}
}

// spec returns the policy in Kubernetes' form.
func (f *fixture) spec(p randomPolicy) map[string]any {
	out := map[string]any{"podSelector": rolesSelector(p.selects)}
	types := []string{}
	for _, d := range []struct {
		name, rules, peers string
		all                []randomRule
	}{{"Ingress", "ingress", "from", p.ingress}, {"Egress", "egress", "to", p.egress}} {
		if d.all == nil {
			continue
		}
		types = append(types, d.name)
		rules := []any{}
		for _, r := range d.all {
			rules = append(rules, f.rule(r, d.peers))
		}
		out[d.rules] = rules
	}
	out["policyTypes"] = types
	return out
}

func (f *fixture) rule(r randomRule, direction string) map[string]any {
	out := map[string]any{}
	var peers, ports []any
	for _, p := range r.peers {
		if p.block != "" {
			peers = append(peers, f.blocks(p.block, p.except)...)
			continue
		}
		peer := map[string]any{"podSelector": rolesSelector(p.roles)}
		if p.team != "" {
			peer["namespaceSelector"] = map[string]any{"matchLabels": map[string]string{"team": p.team}}
		}
		peers = append(peers, peer)
	}
	for _, p := range r.ports {
		one := port(p.protocol, p.first)
		switch {
		case p.named:
			one = port(p.protocol, portName)
		case p.end != 0:
			one["endPort"] = p.end
		}
		ports = append(ports, one)
	}
	if peers != nil {
		out[direction] = peers
	}
	if ports != nil {
		out["ports"] = ports
	}
	return out
}

// drawPolicies draws policies that let some of the traffic between the pods pass, and some not.
func drawPolicies(r *rand.Rand) (all []randomPolicy, allow, deny []flow) {
	for len(allow) == 0 || len(deny) == 0 {
		all = nil
		for range 1 + r.IntN(mostPolicies) {
			all = append(all, drawPolicy(r))
		}
		allow, deny = divide(all)
	}
	return all, allow, deny
}

// divide divides all traffic between the pods into what policies allow and what they do not.
func divide(all []randomPolicy) (allow, deny []flow) {
	pods := map[string]matrixPod{}
	var traffic []flow
	for _, from := range matrixPods() {
		pods[from.name] = from
		for _, to := range matrixPods() {
			if from != to {
				traffic = append(traffic, flowsOf(from.name, to.name)...)
			}
		}
	}
	for _, f := range traffic {
		for _, kind := range f.kinds {
			one := flow{f.from, f.to, f.port, []probe.Kind{kind}}
			if allowed(all, pods[f.from], pods[f.to], kind, int(f.port)) {
				allow = append(allow, one)
			} else {
				deny = append(deny, one)
			}
		}
	}
	return allow, deny
}

// testMatrix compares what random policies let pass with what their definition says, for all traffic between the pods.
func (s *Suite) testMatrix(ctx context.Context, r *recorder) error {
	namespace := s.namespace + policySuffix
	for round := range s.Rounds {
		seed := s.Seed + uint64(round)
		all, allow, deny := drawPolicies(rand.New(rand.NewPCG(seed, 0)))
		for i, p := range all {
			object := policyManifest(namespace, fmt.Sprint("random-", i), s.spec(p))
			if err := s.create(ctx, store.NetworkPolicies(), object); err != nil {
				return err
			}
		}
		name := fmt.Sprintf("random policies %d", seed)
		r.expect(ctx, named(name, append(s.flows(allow, false), s.flows(deny, true)...))...)
		for i := range all {
			if err := s.remove(ctx, store.NetworkPolicies(), namespace, fmt.Sprint("random-", i)); err != nil {
				return err
			}
		}
	}
	return nil
}
