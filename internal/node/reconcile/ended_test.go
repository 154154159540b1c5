// SPDX-License-Identifier: Apache-2.0

package reconcile

import (
	"context"
	"testing"
)

// TestNotificationsEnd: a loop without notifications of the kernel ends with an error, unless it was to end.
func TestNotificationsEnd(t *testing.T) {
	closed := make(chan struct{})
	close(closed)
	stopped, stop := context.WithCancel(t.Context())
	stop()
	for name, l := range map[string]*loop{"links": {Reconciler: &Reconciler{checksums: newChecksums()}, signs: closed}, "nftables": {Reconciler: &Reconciler{checksums: newChecksums()}, tables: closed}} {
		if l.next(t.Context()) || l.deaf == nil {
			t.Errorf("%s: the loop continues without notifications: %v", name, l.deaf)
		}
		l.deaf = nil
		if l.next(stopped) || l.deaf != nil {
			t.Errorf("%s: the end of the agent is an error: %v", name, l.deaf)
		}
	}
}
