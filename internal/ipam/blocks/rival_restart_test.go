// SPDX-License-Identifier: Apache-2.0

package blocks

import (
	"fmt"
	"testing"
	"time"

	"github.com/weft-net/weft/internal/model"
)

// TestRivalsAfterARestart: an engine that starts anew knows of which of two pools an attachment has its address: the
// block of it stays while it is in use, and what is freed is flushed before it is given again.
func TestRivalsAfterARestart(t *testing.T) {
	for range 10 { // a wrong choice was made by chance
		h, overlap := overlapped(t, 30)
		now := time.Unix(1e9, 0)
		clock := func() time.Time { return now }
		n1, n2 := at(t, h, "n1", nil, clock), at(t, h, "n2", nil, clock)
		used, err := n1.addCluster(calicoConf(), "first", model.AddressWishes{Pools4: []string{"young"}})
		if err != nil {
			t.Fatal(err)
		}
		overlap()
		if _, err := n1.addCluster(calicoConf(), "other", model.AddressWishes{Pools4: []string{"old"}}); err != nil {
			t.Fatal(err)
		}
		n1.tend()
		n1.start()
		for range 4 {
			now = now.Add(10 * time.Minute)
			n1.tend()
			n2.tend()
		}
		for i := range 60 {
			if a, err := n2.addCluster(calicoConf(), fmt.Sprint("more", i), model.AddressWishes{}); err == nil && a == used {
				t.Fatalf("address %s is given to a pod of n2, and a pod of n1 has it", a)
			}
		}
	}
}
