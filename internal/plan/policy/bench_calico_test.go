// SPDX-License-Identifier: Apache-2.0

package policy_test

import (
	"fmt"
	"net/netip"
	"runtime"
	"testing"

	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/plan/policy"
)

// calicoPolicy returns one of Calico's policies of a tenant: three rules, of which one is by labels, one by prefixes and one
// by a port.
func calicoPolicy(tb testing.TB, tenant, number int, port uint16) model.Policy {
	tb.Helper()
	expression := func(text string) model.Expression {
		e, err := model.ParseExpression(text)
		if err != nil {
			tb.Fatal(err)
		}
		return e
	}
	return model.Policy{
		PolicyKey: model.PolicyKey{Kind: model.KindGlobalNetworkPolicy, Name: fmt.Sprintf("p%d", number)},
		Tier:      model.TierDefault, Order: new(float64(number)),
		Subject: model.PodPeer{Endpoints: &model.EndpointSelector{Labels: expression(fmt.Sprintf("tenant == 't%d'", tenant))}},
		Ingress: model.PolicyDirection{On: true, Rules: []model.PolicyRule{
			{Action: model.PolicyDeny, Conditions: &model.RuleConditions{
				Source: model.EndConditions{Nets: []netip.Prefix{netip.PrefixFrom(netip.AddrFrom4([4]byte{172, 16, byte(number >> 8), byte(number)}), 32)}},
			}},
			{Action: model.PolicyAccept, Conditions: &model.RuleConditions{
				Protocol: model.NumberTCP,
				Source: model.EndConditions{
					Peer: &model.PodPeer{Endpoints: &model.EndpointSelector{Labels: expression(fmt.Sprintf("app == 'app-%d'", number%10))}},
				},
				Destination: model.EndConditions{Ports: []model.PolicyPort{{Protocol: model.TCP, First: 1000, Last: 1000}}},
			}},
			{Action: model.PolicyAccept, Conditions: &model.RuleConditions{
				Protocol:    model.NumberUDP,
				Destination: model.EndConditions{Ports: []model.PolicyPort{{Protocol: model.UDP, First: port, Last: port}}},
			}},
		}},
	}
}

// calicoCluster returns a cluster of 10,000 remote pods, 100 local ones of some tenants, and 1,000 policies for them.
func calicoCluster(tb testing.TB, tenants int) *policy.Index {
	tb.Helper()
	x := clusterOf(10_000, 0, false)
	for i := range 100 {
		name := fmt.Sprintf("local-%d", i)
		p := model.Pod{
			Namespace: "near", Name: name, UID: name, Node: "n1", IPs: []netip.Addr{netip.AddrFrom4([4]byte{192, 168, 2, byte(i)})},
			Labels: map[string]string{"tenant": fmt.Sprintf("t%d", i%tenants)},
		}
		x.SetPod(p)
		x.SetEndpoint(model.WorkloadEndpoint{
			Pod: model.PodRef{Namespace: "near", Name: name, UID: name}, Node: "n1", IfName: "eth0", HostLink: fmt.Sprintf("cali%d", i),
			Addrs: p.IPs, HostEnd: model.HostEndRouted,
		})
	}
	for i := range 1000 {
		x.SetPolicy(calicoPolicy(tb, i%tenants, i, 53))
	}
	return x
}

// BenchmarkCalicoPolicies is what the change of a rule costs in a cluster with 1,000 of Calico's policies: how many lines go
// to the kernel for it, and how much memory all of them need.
func BenchmarkCalicoPolicies(b *testing.B) {
	for _, tenants := range []int{1, 10, 100} {
		b.Run(fmt.Sprintf("tenants=%d", tenants), func(b *testing.B) {
			empty := heap()
			without := clusterOf(10_000, 0, false)
			without.Changes()
			base := heap() - empty
			runtime.KeepAlive(without)
			without = nil
			empty = heap()
			x := calicoCluster(b, tenants)
			x.Changes()
			size := heap() - empty - base
			lines, changes := 0, 0
			for b.Loop() {
				changes++
				x.SetPolicy(calicoPolicy(b, 500%tenants, 500, uint16(1000+changes%1000)))
				all := x.Changes()
				if len(all) != 1 {
					b.Fatal(len(all))
				}
				for _, c := range all[0].AddChains {
					lines += len(c.Rules)
				}
			}
			b.ReportMetric(float64(lines)/float64(changes), "rules/op")
			b.ReportMetric(float64(size)/(1<<20), "MiB")
			runtime.KeepAlive(x)
		})
	}
}
