// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/weft-net/weft/internal/kernel/nft"
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/nettest"
	"github.com/weft-net/weft/internal/state"
)

// Ordered policies in groups allow the same connections as in one chain, and the answer to "why" is the same.
func TestPolicyGroups(t *testing.T) {
	grouped := 0
	rapid.Check(t, func(t *rapid.T) {
		one, groups := New(Config{Node: "n1", SeparateChains: 1000}), New(Config{Node: "n1", SeparateChains: 1})
		both := []*Index{one, groups}
		for i, ns := range []string{"x", "y"} {
			for j, name := range []string{"a", "b"} {
				p := drawPod(t, ns, name)
				p.UID, p.HostNetwork, p.Phase = "u1", false, "Running"
				p.IPs = addrs(fmt.Sprintf("10.0.0.%d", 2*i+j+1), fmt.Sprintf("fd00::%d", 2*i+j+1))
				for _, x := range both {
					x.SetNamespace(model.Namespace{Name: ns})
					x.SetPod(p)
					x.SetEndpoint(model.WorkloadEndpoint{
						Pod: model.PodRef{Namespace: ns, Name: name, UID: "u1"}, Node: "n1", IfName: "eth0", HostLink: ns + name,
						Addrs: p.IPs, HostEnd: model.HostEndRouted,
					})
				}
			}
		}
		for i := range rapid.IntRange(2, 9).Draw(t, "policies") {
			p := drawCalicoPolicy(t, "x", fmt.Sprint("p", i))
			p.Host = model.HostScope{}
			if p.Tier = "first"; i == 0 { // denies at its end what the others pass
				p.Tier = "second"
			}
			p.Subject = model.PodPeer{Endpoints: &model.EndpointSelector{}}
			for _, r := range slices.Concat(p.Ingress.Rules, p.Egress.Rules) {
				if r.Conditions != nil && rapid.Bool().Draw(t, "by port only") {
					port := uint16(rapid.IntRange(79, 83).Draw(t, "first port"))
					*r.Conditions = model.RuleConditions{
						Family:      rapid.SampledFrom([]int{0, 4, 6}).Draw(t, "of family"),
						Protocol:    model.NumberTCP,
						Destination: model.EndConditions{Ports: []model.PolicyPort{{Protocol: model.TCP, First: port, Last: 83}}},
					}
				}
			}
			for _, x := range both {
				x.SetPolicy(p)
			}
		}
		every(func(f Flow) {
			want, got := one.Allowed(EnforcementPoint{}, f), groups.Allowed(EnforcementPoint{}, f)
			if want != got {
				t.Fatalf("%+v: in one chain %v, in groups %v", f, want, got)
			}
			q := Query{From: ConnectionEnd{Addr: f.Src}, To: ConnectionEnd{Addr: f.Dst}, Protocol: f.Protocol, Port: f.DstPort}
			sameAnswers(t, one, groups, q, want)
		})
		for _, table := range groups.Tables() {
			grouped += count(table.Chains, "policies/")
		}
	})
	if grouped == 0 {
		t.Error("no policies were in groups")
	}
}

func count(chains []state.Chain, prefix string) (n int) {
	for _, c := range chains {
		if strings.HasPrefix(c.Name, prefix) {
			n++
		}
	}
	return n
}

// manyOrdered returns the index of a node with a pod that a number of Calico's policies select. Each allows peers by a label
// of its own.
func manyOrdered(policies int, cfg Config) *Index {
	cfg.Node = "n1"
	x := New(cfg)
	x.SetNamespace(model.Namespace{Name: "x"})
	x.SetPod(model.Pod{Namespace: "x", Name: "a", UID: "u", IPs: addrs("10.0.0.1")})
	x.SetEndpoint(model.WorkloadEndpoint{
		Pod: model.PodRef{Namespace: "x", Name: "a", UID: "u"}, Node: "n1", IfName: "eth0", HostLink: "cali1",
		Addrs: addrs("10.0.0.1"), HostEnd: model.HostEndRouted,
	})
	for i := range policies {
		x.SetPod(model.Pod{
			Namespace: "x", Name: fmt.Sprint("p", i), Labels: map[string]string{"n": fmt.Sprint(i)},
			IPs: []netip.Addr{netip.AddrFrom4([4]byte{10, 1, byte(i >> 8), byte(i)})},
		})
		x.SetPolicy(orderedPolicy(i))
	}
	return x
}

func orderedPolicy(i int) model.Policy {
	peer, err := model.ParseExpression(fmt.Sprintf("n == '%d'", i))
	if err != nil {
		panic(err)
	}
	rule := func(protocol uint8, name model.Protocol, port uint16) model.PolicyRule {
		return model.PolicyRule{Action: model.PolicyAccept, Conditions: &model.RuleConditions{
			Protocol:    protocol,
			Source:      model.EndConditions{Peer: &model.PodPeer{Endpoints: &model.EndpointSelector{Labels: peer}}},
			Destination: model.EndConditions{Ports: []model.PolicyPort{{Protocol: name, First: port, Last: port}}},
		}}
	}
	return model.Policy{
		PolicyKey: model.PolicyKey{Kind: model.KindCalicoNetworkPolicy, Namespace: "x", Name: fmt.Sprintf("p%04d", i)},
		Tier:      model.TierDefault, Subject: model.PodPeer{Namespace: "x", Endpoints: &model.EndpointSelector{Labels: model.Expression{}}},
		Ingress: model.PolicyDirection{On: true, Rules: []model.PolicyRule{
			rule(model.NumberUDP, model.UDP, 6100), rule(model.NumberTCP, model.TCP, 7000),
		}},
	}
}

// One more policy among a thousand changes the rules of one group, and the jumps to all groups.
func TestOneMorePolicyChangesOneGroup(t *testing.T) {
	const policies, limit = 1000, 500
	x := manyOrdered(policies, Config{})
	x.Changes()
	rules := func() int {
		n := 0
		for _, c := range x.Changes() {
			for _, chain := range c.AddChains {
				n += len(chain.Rules)
			}
		}
		return n
	}
	most := 0
	for i := 0; i < policies; i += 50 {
		x.DelPolicy(orderedPolicy(i).PolicyKey)
		gone := rules()
		x.SetPolicy(orderedPolicy(i))
		most = max(most, gone, rules())
	}
	if most == 0 || most > limit {
		t.Errorf("up to %d rules are written again for one policy among %d; want at most %d", most, policies, limit)
	}
	changed := orderedPolicy(500)
	changed.Ingress.Rules = changed.Ingress.Rules[:1]
	x.SetPolicy(changed)
	if n := rules(); n == 0 || n > limit/2 {
		t.Errorf("%d rules are written again for a policy that has changed; want those of its group", n)
	}
}

// The rules of ordered policies in groups are listed once, and packets of IPv4 do not pass those of IPv6.
func TestPolicyGroupsByFamily(t *testing.T) {
	x := manyOrdered(20, Config{})
	open := orderedPolicy(7)
	open.Ingress.Rules = append(open.Ingress.Rules, model.PolicyRule{
		Action: model.PolicyAccept, Conditions: &model.RuleConditions{Protocol: model.NumberTCP},
	})
	x.SetPolicy(open)
	view, err := x.Show(model.PodRef{Namespace: "x", Name: "a", UID: "u"})
	if err != nil || len(view.Interfaces) != 1 {
		t.Fatal(view, err)
	}
	if n := len(view.Interfaces[0].Ingress.Rules); n != 20*4+1 {
		t.Errorf("%d rules are shown, want 4 of each policy and one", n)
	}
	four, six := 0, 0
	for _, c := range x.Tables()[0].Chains {
		switch {
		case strings.HasPrefix(c.Name, "policies/4/"):
			four += len(c.Rules)
		case strings.HasPrefix(c.Name, "policies/6/"):
			six += len(c.Rules)
		}
	}
	if four != 20*2+1 || six != four {
		t.Errorf("%d rules for IPv4 and %d for others, want half of each policy's and one", four, six)
	}
}

// BenchmarkOneMoreOrderedPolicy is a policy of Calico's that is added to others of one pod, and removed again: the plan, and
// the kernel's transaction; in one chain, as policies were before, and in groups.
func BenchmarkOneMoreOrderedPolicy(b *testing.B) {
	c, err := nft.Dial(nettest.NS(b, "n"))
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	for _, policies := range []int{1, 100, 1000} {
		layouts := map[string]Config{"one chain": {SeparateChains: 10_000}, "groups": {}}
		indexes, times := map[string]*Index{}, map[string][2]time.Duration{}
		b.Run(fmt.Sprintf("policies=%d", policies), func(b *testing.B) {
			for b.Loop() {
				for _, layout := range slices.Sorted(maps.Keys(layouts)) {
					x := indexes[layout]
					if x == nil {
						x = manyOrdered(policies, layouts[layout])
						indexes[layout] = x
					}
					if err := c.Remove(b.Context(), []state.Table{{Family: TableFamily, Name: TableName}}); err != nil {
						b.Fatal(err)
					}
					x.Changes()
					if err := c.Apply(b.Context(), []state.Table{x.Tables()[0].Table}); err != nil {
						b.Fatal(err)
					}
					took := times[layout]
					for _, step := range []func(){
						func() { x.SetPolicy(orderedPolicy(policies)) }, func() { x.DelPolicy(orderedPolicy(policies).PolicyKey) },
					} {
						begin := time.Now()
						step()
						changes := x.Changes()
						planned := time.Now()
						if err := c.Change(b.Context(), []state.TableChange{changes[0].TableChange}); err != nil {
							b.Fatal(err)
						}
						took[0], took[1] = took[0]+planned.Sub(begin), took[1]+time.Since(planned)
					}
					times[layout] = took
				}
			}
			for i, part := range []string{"plan", "kernel"} {
				for layout, took := range times {
					b.ReportMetric(float64(took[i].Microseconds())/2/1000/float64(b.N), strings.ReplaceAll(layout, " ", "-")+"-"+part+"-ms")
				}
			}
		})
	}
}
