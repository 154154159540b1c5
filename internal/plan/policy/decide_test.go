// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/weft-net/weft/internal/model"
)

// manyPods returns an index with one endpoint of this node, pod 0, in a namespace of so many pods.
func manyPods(pods int) *Index {
	x := New(Config{Node: "node1"})
	x.SetNamespace(model.Namespace{Name: "shop"})
	for i := range pods {
		p := model.Pod{
			Namespace: "shop", Name: fmt.Sprint("pod-", i), UID: fmt.Sprint("uid-", i), Node: fmt.Sprint("node", 1+i%100), Phase: "Running",
			IPs: []netip.Addr{addrOfPod(i)},
		}
		x.SetPod(p)
		if i == 0 {
			x.SetEndpoint(model.WorkloadEndpoint{
				Pod: model.PodRef{Namespace: "shop", Name: p.Name, UID: p.UID}, Node: "node1", IfName: "eth0", HostLink: "cali0",
				Addrs: p.IPs, HostEnd: model.HostEndRouted,
			})
		}
	}
	x.SetPolicy(model.Policy{
		PolicyKey: model.PolicyKey{Kind: model.KindNetworkPolicy, Namespace: "shop", Name: "all"},
		Subject:   model.PodPeer{Namespace: "shop"}, Ingress: model.PolicyDirection{On: true},
	})
	return x
}

func addrOfPod(i int) netip.Addr {
	return netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)})
}

// What has an address is found again after the pod was replaced, moved its address to another pod, or is gone.
func TestHolderFollowsPods(t *testing.T) {
	x := manyPods(10)
	addr := addrOfPod(5)
	holder := func(want string) {
		t.Helper()
		for range 2 {
			if got := x.Holder("", addr).Name; got != want {
				t.Fatalf("%q has the address, want %q", got, want)
			}
		}
	}
	pod := func(name, uid string, addrs ...netip.Addr) model.Pod {
		return model.Pod{Namespace: "shop", Name: name, UID: uid, Node: "node2", Phase: "Running", IPs: addrs}
	}
	holder("pod-5")
	x.SetPod(pod("pod-5", "another", addr))
	holder("pod-5")
	x.SetPod(pod("pod-5", "another"))
	holder("")
	x.SetPod(pod("next", "next", addr))
	holder("next")
	x.DelPod("shop", "next")
	holder("")
	sides := x.Decide("", Flow{Src: addrOfPod(6), Dst: addrOfPod(0), Protocol: model.TCP, DstPort: 80})
	if len(sides) != 1 || sides[0].Allowed || sides[0].Pod.Name != "pod-0" {
		t.Errorf("%+v", sides)
	}
}

// BenchmarkDecide is what a flow costs in a namespace of many pods.
func BenchmarkDecide(b *testing.B) {
	for _, pods := range []int{10, 10000} {
		b.Run(fmt.Sprint(pods), func(b *testing.B) {
			x := manyPods(pods)
			for i := range b.N {
				x.Decide("", Flow{Src: addrOfPod(1 + i%(pods-1)), Dst: addrOfPod(0), Protocol: model.TCP, DstPort: 80})
			}
		})
	}
}
