// SPDX-License-Identifier: Apache-2.0

package blocks

import (
	"fmt"
	"testing"
	"time"

	"github.com/weft-net/weft/internal/model"
)

// TestOverlapAfterRestart: an engine that restarts knows of which of two pools an attachment has its address: its block
// stays while it is in use, and what is released is flushed before it is allocated again.
func TestOverlapAfterRestart(t *testing.T) {
	for range 10 { // the wrong choice was random
		h, overlap := overlapped(t, 30)
		now := time.Unix(1e9, 0)
		clock := func() time.Time { return now }
		n1, n2 := at(t, h, "n1", nil, clock), at(t, h, "n2", nil, clock)
		used, err := n1.addCluster(calicoConf(), "first", model.AddressRequest{Pools4: []string{"young"}})
		if err != nil {
			t.Fatal(err)
		}
		overlap()
		if _, err := n1.addCluster(calicoConf(), "other", model.AddressRequest{Pools4: []string{"old"}}); err != nil {
			t.Fatal(err)
		}
		n1.reconcile()
		n1.start()
		for range 4 {
			now = now.Add(10 * time.Minute)
			n1.reconcile()
			n2.reconcile()
		}
		for i := range 60 {
			if a, err := n2.addCluster(calicoConf(), fmt.Sprint("more", i), model.AddressRequest{}); err == nil && a == used {
				t.Fatalf("address %s is given to a pod of n2, and a pod of n1 has it", a)
			}
		}
	}
}
