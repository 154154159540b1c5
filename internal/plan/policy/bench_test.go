// SPDX-License-Identifier: Apache-2.0

package policy_test

import (
	"fmt"
	"net/netip"
	"runtime"
	"strings"
	"testing"

	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/plan/policy"
)

// farPod is a pod of a Deployment on another node: strings of its own, as a decoder makes them, labels that its
// siblings have, too.
func farPod(i int) model.Pod {
	ns := strings.Clone(fmt.Sprintf("team-%d", i/200))
	app, hash := fmt.Sprintf("app-%d", i/20%10), fmt.Sprintf("%08x", i/20)
	return model.Pod{
		Namespace: ns, Name: fmt.Sprintf("%s-%s-%05x", app, hash, i), UID: fmt.Sprintf("00000000-0000-4000-8000-%012x", i),
		Node: "n2", Phase: "Running",
		IPs: []netip.Addr{netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)})},
		Labels: map[string]string{
			"app": app, "pod-template-hash": hash, "app.kubernetes.io/managed-by": "Helm", "app.kubernetes.io/part-of": ns,
		},
	}
}

func farEndpoint(p model.Pod) model.WorkloadEndpoint {
	return model.WorkloadEndpoint{
		Pod: model.PodRef{Namespace: p.Namespace, Name: p.Name, UID: p.UID}, Node: p.Node, IfName: "eth0", Addrs: p.IPs,
	}
}

// clusterOf returns a cluster of remote pods, a local one, and policies that let all pods reach it on one port each.
func clusterOf(pods, policies int, dual bool) *policy.Index {
	x := policy.New(policy.Config{Node: "n1"})
	for i := range pods {
		p := farPod(i)
		if dual {
			p.IPs = append(p.IPs, netip.AddrFrom16([16]byte{0xfd, 13: byte(i >> 16), 14: byte(i >> 8), 15: byte(i)}))
		}
		x.SetNamespace(model.Namespace{Name: p.Namespace})
		x.SetPod(p)
		x.SetEndpoint(farEndpoint(p))
	}
	near := model.Pod{
		Namespace: "near", Name: "web", UID: "u", Node: "n1", IPs: []netip.Addr{netip.MustParseAddr("192.168.1.1")},
	}
	x.SetNamespace(model.Namespace{Name: "near"})
	x.SetPod(near)
	x.SetEndpoint(model.WorkloadEndpoint{
		Pod: model.PodRef{Namespace: "near", Name: "web", UID: "u"}, Node: "n1", IfName: "eth0", HostLink: "cali1",
		Addrs: near.IPs, HostEnd: model.HostEndRouted,
	})
	for i := range policies {
		x.SetPolicy(model.Policy{
			PolicyKey: model.PolicyKey{Kind: model.KindNetworkPolicy, Namespace: "near", Name: fmt.Sprintf("p%d", i)},
			Subject:   model.PodPeer{Namespace: "near"},
			Ingress: model.PolicyDirection{On: true, Rules: []model.PolicyRule{{
				Action: model.PolicyAccept, Peers: []model.PolicyPeer{{Pods: &model.PodPeer{}}},
				Ports: []model.PolicyPort{{Protocol: model.TCP, First: uint16(1000 + i), Last: uint16(1000 + i)}},
			}}},
		})
	}
	return x
}

// BenchmarkOneMorePod is what a pod that comes and goes costs, in a cluster of 10,000 whose policies select everything.
func BenchmarkOneMorePod(b *testing.B) {
	for _, policies := range []int{1, 100} {
		b.Run(fmt.Sprintf("policies=%d", policies), func(b *testing.B) {
			x := clusterOf(10_000, policies, false)
			x.Changes()
			for b.Loop() {
				p := farPod(10_001)
				p.Namespace = "team-0"
				x.SetPod(p)
				came := x.Changes()
				x.DelPod(p.Namespace, p.Name)
				if gone := x.Changes(); len(came) != 1 || len(gone) != 1 {
					b.Fatal(len(came), len(gone))
				}
			}
		})
	}
}

// BenchmarkOneMoreRange is what one more range of a policy with 10,000 costs, and its removal.
func BenchmarkOneMoreRange(b *testing.B) {
	x := clusterOf(10, 0, false)
	x.SetNamespace(model.Namespace{Name: "near"})
	ranges := func(n int) model.Policy {
		r := model.PolicyRule{Action: model.PolicyAccept, AnyPort: true}
		for i := range n {
			p := netip.PrefixFrom(netip.AddrFrom4([4]byte{20, byte(i >> 7), byte(i << 1), 0}), 24)
			r.Peers = append(r.Peers, model.PolicyPeer{Block: &model.IPBlock{CIDR: p}})
		}
		return model.Policy{
			PolicyKey: model.PolicyKey{Kind: model.KindNetworkPolicy, Namespace: "near", Name: "ranges"},
			Subject:   model.PodPeer{Namespace: "near"},
			Ingress:   model.PolicyDirection{On: true, Rules: []model.PolicyRule{r}},
		}
	}
	few, more := ranges(10_000), ranges(10_001)
	x.SetPolicy(few)
	x.Changes()
	b.ReportAllocs()
	for b.Loop() {
		x.SetPolicy(more)
		came := x.Changes()
		x.SetPolicy(few)
		if gone := x.Changes(); len(came) != 1 || len(gone) != 1 || len(came[0].AddElements[0].Elements) != 1 ||
			len(gone[0].DeleteElements[0].Elements) != 1 {
			b.Fatal(len(came), len(gone))
		}
	}
}

// BenchmarkBytesPerPod measures the memory that a far pod needs, known by its object and published by its node.
func BenchmarkBytesPerPod(b *testing.B) {
	for _, c := range []struct {
		policies int
		dual     bool
	}{{0, false}, {1, false}, {100, false}, {1, true}} {
		b.Run(fmt.Sprintf("policies=%d,dual=%v", c.policies, c.dual), func(b *testing.B) {
			const pods = 100_000
			for b.Loop() {
				before := heap()
				x := clusterOf(pods, c.policies, c.dual)
				x.Changes()
				b.ReportMetric(float64(heap()-before)/pods, "B/pod")
				runtime.KeepAlive(x)
			}
		})
	}
}

func heap() uint64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// BenchmarkWhole is the way from nothing to the tables: what an agent does when it starts.
func BenchmarkWhole(b *testing.B) {
	for b.Loop() {
		x := clusterOf(10_000, 10, false)
		if changes := x.Changes(); len(changes) != 1 {
			b.Fatal(len(changes))
		}
	}
}
