// SPDX-License-Identifier: Apache-2.0

package attach

import (
	"testing"

	"github.com/weft-net/weft/internal/model"
)

// TestUnproven: a pod's VM is proven if root configures it, not if the pod's annotations claim it.
func TestUnproven(t *testing.T) {
	vm := model.VMRef{Namespace: "default", Name: "db"}
	byRoot, byPod := model.Request{Args: [][2]string{{"WEFT_VM", vm.String()}}},
		model.Request{Origin: &model.Origin{VM: &vm}}
	for _, c := range []struct {
		request  model.Request
		unproven bool
	}{{byRoot, false}, {byPod, true}} {
		if q := allocateRequest(c.request, model.PluginConf{}); q.VM == nil || *q.VM != vm || q.UnverifiedVM != c.unproven {
			t.Errorf("%+v: %+v", c.request, q)
		}
	}
}
