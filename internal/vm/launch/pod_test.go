// SPDX-License-Identifier: Apache-2.0

package launch_test

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"

	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/vm/launch"
	"github.com/weft-net/weft/internal/vm/manifest"
)

// TestPodManifest: a VM's pod has KubeVirt's labels, annotations and network selections.
func TestPodManifest(t *testing.T) {
	l := manifest.Launch{
		VM: model.VM{
			Namespace: "shop", Name: "db", UID: "u-1", Hostname: "db",
			Interfaces: []model.VMInterface{
				{Name: "default", Network: model.VMNetwork{Name: "default", Primary: true}},
				{Name: "blue", Network: model.VMNetwork{Name: "blue"}, MAC: "02:00:00:00:00:07"},
			},
		},
		Labels: map[string]string{"app": "db"}, Annotations: map[string]string{"a": "b"}, Node: "node2",
		Networks: []manifest.LaunchNetwork{{Network: "blue", Definition: "blue"}},
	}
	b, err := launch.PodManifest(l, []string{"sleep", "infinity"})
	if err != nil {
		t.Fatal(err)
	}
	var p v1.Pod
	if err := json.Unmarshal(b, &p); err != nil {
		t.Fatal(err)
	}
	if p.Name != "virt-launcher-db" || p.Namespace != "shop" || p.Spec.NodeName != "node2" || p.Spec.Hostname != "db" {
		t.Errorf("%s", b)
	}
	if d := cmp.Diff(map[string]string{"app": "db", "kubevirt.io": "virt-launcher", "vm.kubevirt.io/name": "db"},
		p.Labels); d != "" {
		t.Error(d)
	}
	want := map[string]string{
		"a": "b", "kubevirt.io/domain": "db",
		"k8s.v1.cni.cncf.io/networks": `[{"cni-args":{"logicNetworkName":"blue"},"interface":"pod16477688c0e","mac":"02:00:00:00:00:07","name":"blue","namespace":"shop"}]`,
	}
	if d := cmp.Diff(want, p.Annotations); d != "" {
		t.Error(d)
	}
	if o := p.OwnerReferences; len(o) != 1 || o[0].Kind != "VirtualMachineInstance" || o[0].UID != "u-1" {
		t.Errorf("%v", o)
	}
}
