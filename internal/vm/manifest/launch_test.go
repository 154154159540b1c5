// SPDX-License-Identifier: Apache-2.0

package manifest

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/weft-net/weft/internal/model"
)

const launched = `apiVersion: kubevirt.io/v1
kind: VirtualMachine
metadata: {name: db, namespace: shop}
spec:
  template:
    metadata:
      labels: {app: db}
      annotations: {a: b}
    spec:
      nodeSelector: {kubernetes.io/hostname: node2}
      terminationGracePeriodSeconds: 5
      domain:
        cpu: {cores: 2, sockets: 2}
        memory: {guest: 256Mi}
        devices:
          interfaces:
          - {name: default, masquerade: {}}
          - {name: blue, bridge: {}}
      networks:
      - {name: default, pod: {}}
      - {name: blue, multus: {networkName: other/blue}}
---
apiVersion: v1
kind: Pod
metadata: {name: p}
---
apiVersion: kubevirt.io/v1
kind: VirtualMachineInstance
metadata: {name: web}
spec:
  domain:
    resources: {requests: {memory: 100Mi}}
    devices: {}
`

// TestLaunch: what is needed to run machines, of each kind of manifest.
func TestLaunch(t *testing.T) {
	got, err := ReadAll([]byte(launched), Options{})
	if err != nil || len(got) != 2 {
		t.Fatalf("%d %v", len(got), err)
	}
	for i := range got {
		got[i].VM = model.VM{Namespace: got[i].VM.Namespace, Name: got[i].VM.Name}
	}
	want := []Launch{
		{
			VM: model.VM{Namespace: "shop", Name: "db"}, Labels: map[string]string{"app": "db"}, Annotations: map[string]string{"a": "b"}, Node: "node2",
			CPUs: 4, Memory: 256, Networks: []LaunchNetwork{{"blue", "other/blue"}}, Grace: 5,
		},
		{VM: model.VM{Namespace: "default", Name: "web"}, Memory: 100, Grace: 30},
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	one, err := ReadLaunch([]byte(launched), Options{Name: "web"})
	if err != nil || one.VM.Name != "web" {
		t.Errorf("%+v %v", one, err)
	}
	if none, err := ReadAll([]byte("apiVersion: v1\nkind: Pod\n"), Options{}); err != nil || len(none) > 0 {
		t.Errorf("%v %v", none, err)
	}
}
