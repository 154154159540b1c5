// SPDX-License-Identifier: Apache-2.0

package release

import (
	"testing"

	apps "k8s.io/api/apps/v1"
)

// TestOnDelete: an upgrade does not wait for pods that it does not replace, and waits until they are ready.
func TestOnDelete(t *testing.T) {
	for ready, complete := range map[int32]bool{2: false, 3: true} {
		d := &apps.DaemonSet{Status: apps.DaemonSetStatus{
			DesiredNumberScheduled: 3, CurrentNumberScheduled: 3, UpdatedNumberScheduled: 1, NumberReady: ready,
		}}
		d.Spec.UpdateStrategy.Type = apps.OnDeleteDaemonSetStrategyType
		if w := ofDaemonSet(tunnels, d, true); w.complete() != complete {
			t.Errorf("%d of 3 ready: %+v", ready, w)
		}
		d.Spec.UpdateStrategy.Type = apps.RollingUpdateDaemonSetStrategyType
		if w := ofDaemonSet(agents, d, true); w.complete() {
			t.Errorf("one of 3 updated: %+v", w)
		}
	}
}
