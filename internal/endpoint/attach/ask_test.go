// SPDX-License-Identifier: Apache-2.0

package attach

import (
	"testing"

	"github.com/weft-net/weft/internal/model"
)

// TestUnproven: whose machine a pod is there for is proven where root says so, not where the pod does.
func TestUnproven(t *testing.T) {
	vm := model.VMRef{Namespace: "default", Name: "db"}
	byRoot, byPod := model.Request{Args: [][2]string{{"WEFT_VM", vm.String()}}},
		model.Request{Origin: &model.Origin{VM: &vm}}
	for _, c := range []struct {
		request  model.Request
		unproven bool
	}{{byRoot, false}, {byPod, true}} {
		if q := ask(c.request, model.PluginConf{}); q.VM == nil || *q.VM != vm || q.Unproven != c.unproven {
			t.Errorf("%+v: %+v", c.request, q)
		}
	}
}
