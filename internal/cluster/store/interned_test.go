// SPDX-License-Identifier: Apache-2.0

package store

import (
	"fmt"
	"runtime"
	"testing"
	"unsafe"
)

func exampleNode(tb testing.TB, i int) Object {
	o, err := NewObject(fmt.Appendf(nil, `{"apiVersion":"v1","kind":"Node","metadata":{"name":"node-%d","labels":{
		"beta.kubernetes.io/arch":"amd64","beta.kubernetes.io/os":"linux","kubernetes.io/arch":"amd64",
		"kubernetes.io/hostname":"node-%d","kubernetes.io/os":"linux","node.kubernetes.io/instance-type":"m5.large",
		"topology.kubernetes.io/region":"region-1","topology.kubernetes.io/zone":"region-1a"}},
		"spec":{"podCIDRs":["10.%d.%d.0/24"]},"status":{"addresses":[{"type":"InternalIP","address":"172.16.%d.%d"}]}}`,
		i, i, i>>8&255, i&255, i>>8&255, i&255))
	if err != nil {
		tb.Fatal(err)
	}
	return o
}

// TestInterned: nodes share the texts of their labels and kinds.
func TestInterned(t *testing.T) {
	a, b := exampleNode(t, 1), exampleNode(t, 2)
	one, err := a.Node()
	if err != nil {
		t.Fatal(err)
	}
	two, err := b.Node()
	if err != nil {
		t.Fatal(err)
	}
	if len(one.Labels) != 8 || one.Labels["kubernetes.io/hostname"] != "node-1" || one.Labels["kubernetes.io/os"] != "linux" {
		t.Fatalf("labels %v", one.Labels)
	}
	same := func(a, b string) bool { return unsafe.StringData(a) == unsafe.StringData(b) }
	if v := "topology.kubernetes.io/zone"; !same(one.Labels[v], two.Labels[v]) || !same(a.Key.Kind, b.Key.Kind) {
		t.Error("two nodes have texts of their own")
	}
}

// BenchmarkBytesPerNode measures the memory of a Node object.
func BenchmarkBytesPerNode(b *testing.B) {
	const nodes = 10_000
	heap := func() uint64 {
		runtime.GC()
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	for b.Loop() {
		before := heap()
		all := make([]Object, 0, nodes)
		for i := range nodes {
			all = append(all, exampleNode(b, i))
		}
		b.ReportMetric(float64(heap()-before)/nodes, "B/node")
		runtime.KeepAlive(all)
	}
}
