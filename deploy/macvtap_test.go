// SPDX-License-Identifier: Apache-2.0

package deploy

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	apps "k8s.io/api/apps/v1"
	core "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"sigs.k8s.io/yaml"

	"github.com/weft-net/weft/deploy/chart"
)

// TestMacvtapPatch: the patch makes of the manifests' DaemonSet what the chart's value makes of it.
func TestMacvtapPatch(t *testing.T) {
	agents := func(values object) []byte {
		all, err := chart.Render(values, "kube-system")
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range all {
			if !strings.Contains(m.Text, "kind: DaemonSet\nmetadata:\n  name: weft\n") {
				continue
			}
			b, err := yaml.YAMLToJSON([]byte(m.Text))
			if err != nil {
				t.Fatal(err)
			}
			return b
		}
		t.Fatal("no DaemonSet")
		return nil
	}
	patch, err := yaml.YAMLToJSON(file(t, "kubevirt/macvtap.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	patched, err := strategicpatch.StrategicMergePatch(agents(nil), patch, apps.DaemonSet{})
	if err != nil {
		t.Fatal(err)
	}
	var got, want apps.DaemonSet
	if err := json.Unmarshal(patched, &got); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(agents(object{"kubevirt": object{"macvtap": true}}), &want); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got, cmpopts.SortSlices(func(a, b core.Volume) bool { return a.Name < b.Name }),
		cmpopts.SortSlices(func(a, b core.VolumeMount) bool { return a.MountPath < b.MountPath })); diff != "" {
		t.Errorf("the chart's (-) and the patched DaemonSet (+):\n%s", diff)
	}
}
