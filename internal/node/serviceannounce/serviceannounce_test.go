// SPDX-License-Identifier: Apache-2.0

package serviceannounce

import (
	"fmt"
	"net/netip"
	"testing"
)

// TestElect: addresses are spread over nodes, whatever their order, and a lost node moves its own addresses only.
func TestElect(t *testing.T) {
	nodes, addr := []string{"worker-1", "worker-2", "worker-3", "worker-4"}, netip.MustParseAddr("192.0.2.0")
	count := map[string]int{}
	for range 400 {
		addr = addr.Next()
		was := Elect(addr, nodes)
		count[was]++
		if got := Elect(addr, []string{"worker-4", "worker-2", "worker-1", "worker-3"}); got != was {
			t.Errorf("%s is at %s, in another order at %s", addr, was, got)
		}
		if got := Elect(addr, nodes[:3]); was != "worker-4" && got != was {
			t.Errorf("%s moves from %s to %s when another node is lost", addr, was, got)
		}
	}
	for _, n := range nodes {
		if count[n] < 70 || count[n] > 130 {
			t.Errorf("%s has %d of 400 addresses: %s", n, count[n], fmt.Sprint(count))
		}
	}
	if got := Elect(addr, nil); got != "" {
		t.Errorf("without nodes %s is elected", got)
	}
}
