// SPDX-License-Identifier: Apache-2.0

package store

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/weft-net/weft/internal/model"
)

func TestNodeEndpoints(t *testing.T) {
	want := []model.WorkloadEndpoint{
		{Pod: model.PodRef{Namespace: "shop", Name: "web", UID: "u1"}, Node: "n1", IfName: "eth0", Addrs: []netip.Addr{
			netip.MustParseAddr("10.1.0.2"), netip.MustParseAddr("fd00::2"),
		}},
		{Pod: model.PodRef{Namespace: "shop", Name: "web", UID: "u1"}, Node: "n1", Network: "shop/fast", IfName: "net1"},
	}
	o, err := NodeEndpointsObject(Object{}, "n1", want)
	if err != nil {
		t.Fatal(err)
	}
	if o, err = NewObject(o.Raw); err != nil || !o.Key.Of(NodeEndpoints()) || o.Key.Name != "n1" {
		t.Fatalf("%v %v", o.Key, err)
	}
	got, err := o.WithoutRaw().NodeEndpoints()
	same := cmp.Comparer(func(a, b netip.Addr) bool { return a == b })
	if d := cmp.Diff(want, got, same); err != nil || d != "" {
		t.Errorf("%v %s", err, d)
	}
	if o, err = NodeEndpointsObject(o, "n1", nil); err != nil || strings.Contains(string(o.Raw), "web") {
		t.Errorf("%s %v", o.Raw, err)
	}
}

func TestNodeEndpointsFaults(t *testing.T) {
	for spec, want := range map[string]string{
		`{"endpoints":[{"namespace":"a","pod":"p"}]}`:                                        "NodeEndpoints n1: spec.endpoints[0] names no pod and interface (delete it; weft makes these objects itself)",
		`{"endpoints":[{"namespace":"a","pod":"p","interface":"e","addresses":["10.0.0"]}]}`: `NodeEndpoints n1: spec.endpoints[0].addresses[0] "10.0.0" is no IP address (write for example "192.168.0.1")`,
	} {
		o, err := NewObject(
			[]byte(`{"apiVersion":"weft.dev/v1alpha1","kind":"NodeEndpoints","metadata":{"name":"n1"},"spec":` + spec + `}`),
		)
		if err == nil {
			_, err = o.NodeEndpoints()
		}
		if err == nil || err.Error() != want {
			t.Errorf("%s: %v", spec, err)
		}
	}
}
