// SPDX-License-Identifier: Apache-2.0

package kube_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/weft-net/weft/internal/model"
)

// devices are listed by one request, for this node and one driver, in the newest version of each pool.
func devices(t *testing.T, w world) {
	text := func(s string) object { return object{"string": s} }
	publish := func(name, node, driver, pool string, generation int, device object) {
		w.Do("POST", "/apis/resource.k8s.io/v1/resourceslices", object{
			"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", "metadata": object{"name": name},
			"spec": object{
				"nodeName": node, "driver": driver, "pool": object{"name": pool, "generation": generation, "resourceSliceCount": 1},
				"devices": []object{device},
			},
		})
	}
	netDevice := func(name, id, resource string) object {
		return object{
			"name": name, "attributes": object{
				"k8s.cni.cncf.io/deviceID": text(id), "k8s.cni.cncf.io/resourceName": text(resource), "numa": object{"int": 1},
			},
		}
	}
	publish("a", "n1", "vf.example.com", "n1", 2, netDevice("vf-1", "0000:01:00.1", "example.com/vf"))
	publish("b", "n1", "vf.example.com", "n1", 1, netDevice("vf-0", "0000:01:00.0", "example.com/vf"))
	publish("c", "n1", "vf.example.com", "more", 1, object{"name": "vf-7"})
	publish("d", "n2", "vf.example.com", "n2", 1, netDevice("vf-2", "0000:01:00.2", "example.com/vf"))
	publish("e", "n1", "gpu.example.com", "n1", 1, netDevice("gpu-1", "0000:02:00.1", "example.com/gpu"))
	v := start(t, w.config(t, "n1"))
	got, err := v.Devices(t.Context(), "vf.example.com")
	want := []model.PublishedDevice{{Pool: "n1", Name: "vf-1", ID: "0000:01:00.1", Resource: "example.com/vf"}}
	if d := cmp.Diff(want, got); d != "" || err != nil {
		t.Errorf("%v %s", err, d)
	}
	if got, err := v.Devices(t.Context(), "nobody.example.com"); len(got) > 0 || err != nil {
		t.Errorf("%v %v", got, err)
	}
}
