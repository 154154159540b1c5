// SPDX-License-Identifier: Apache-2.0

package workload

import (
	"strings"
	"testing"

	"github.com/weft-net/weft/internal/lab/replicas"
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/vm/launch"
)

// TestDrainable: pods without an owner need --force, and VMs are refused also with it.
func TestDrainable(t *testing.T) {
	replica := model.Pod{Namespace: "default", Name: "front-0", Annotations: map[string]string{replicas.OwnerAnnotation: "ReplicaSet/front"}}
	single := model.Pod{Namespace: "default", Name: "single"}
	vm := model.Pod{Namespace: "far", Name: "virt-launcher-db", Annotations: map[string]string{launch.DomainAnnotation: "db"}}
	for _, c := range []struct {
		pods  []model.Pod
		force bool
		want  string
	}{
		{nil, false, ""},
		{[]model.Pod{replica}, false, ""},
		{[]model.Pod{replica, single}, false, "not of a Deployment or a ReplicaSet: default/single"},
		{[]model.Pod{replica, single}, true, ""},
		{[]model.Pod{vm}, false, "has VMs: far/db"},
		{[]model.Pod{vm, single}, true, "has VMs: far/db"},
	} {
		err := drainable(c.pods, "node1", c.force)
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%d pods, force %t: got %v, want %q", len(c.pods), c.force, err, c.want)
		}
	}
}
