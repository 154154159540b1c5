// SPDX-License-Identifier: Apache-2.0

package blocks

import (
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/nettest"
)

// TestAwayWhilePodsComeAndGo: a real API server is stopped for a while, in which pods come and go on three nodes whose
// engines live; one of these is restarted. No ADD fails that has an address on its node, none is allocated twice, and
// when the server is back the nodes get further blocks. WEFT_OUTAGE lengthens the while, to ten minutes (10m) for
// example.
func TestAwayWhilePodsComeAndGo(t *testing.T) {
	nettest.EndToEnd(t)
	outage := 2 * time.Second
	if text := os.Getenv("WEFT_OUTAGE"); text != "" {
		var err error
		if outage, err = time.ParseDuration(text); err != nil {
			t.Fatal(err)
		}
	}
	s := kubernetes(t)
	_, path := cluster(t, nil)
	s.Do("POST", "/apis/weft.dev/v1alpha1/addresspools", map[string]any{
		"apiVersion": "weft.dev/v1alpha1", "kind": "AddressPool", "metadata": map[string]any{"name": "pods"},
		"spec": map[string]any{
			"assignmentMode": "Automatic", "regions": []any{map[string]any{"cidr": "10.7.0.0/22", "blockSize": 27}},
		},
	})
	var nodes []*node
	var stops []func()
	for _, name := range []string{"a", "b", "c"} {
		n := join(t, path, name, func(c *Config) {
			c.Objects, c.Cooldown, c.Idle = over(t, s, s.URL, name).Objects(), 200*time.Millisecond, time.Second
		})
		stops = append(stops, n.run())
		nodes = append(nodes, n)
	}
	next, most, away := 0, 24, false
	churn := func(d time.Duration) {
		t.Helper()
		first := next
		for end := time.Now().Add(d); time.Now().Before(end) || next < first+len(nodes); time.Sleep(20 * time.Millisecond) {
			n := nodes[next%len(nodes)]
			_, err := n.addCluster(calicoConf(), fmt.Sprintf("c%09d", next), model.AddressRequest{})
			for limit := time.Now().Add(time.Minute); !away && err != nil && time.Now().Before(limit); { // a busy server
				_, err = n.addCluster(calicoConf(), fmt.Sprintf("c%09d", next), model.AddressRequest{})
			}
			if err != nil {
				t.Fatalf("pod %d: %v", next, err)
			}
			for next++; len(n.ledger) > most; {
				oldest := ""
				for k := range n.ledger {
					if oldest == "" || k.ContainerID < oldest {
						oldest = k.ContainerID
					}
				}
				n.del(oldest)
			}
			checkOnce(t, nodes...)
		}
	}
	churn(2 * time.Second)
	s.Stop()
	away = true
	churn(outage / 2)
	stops[0]()
	nodes[0].start()
	nodes[0].run()
	churn(outage / 2)
	s.Restart()
	most = 60
	for range 3 * 60 { // more than they had: of new blocks
		n := nodes[next%len(nodes)]
		var err error
		for limit := time.Now().Add(time.Minute); time.Now().Before(limit); time.Sleep(50 * time.Millisecond) {
			if _, err = n.addCluster(calicoConf(), fmt.Sprintf("c%09d", next), model.AddressRequest{}); err == nil {
				break
			}
		}
		if next++; err != nil {
			t.Fatalf("with the server again: %v", err)
		}
	}
	checkOnce(t, nodes...)
	t.Logf("%d pods, the server was away for %v", next, outage)
}
