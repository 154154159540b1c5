// SPDX-License-Identifier: Apache-2.0

package leaks_test

import (
	"os"
	"sync"
	"testing"
	"time"
)

// TestParallel attaches many pods concurrently: no errors but "try again later", no duplicate addresses, and nothing is left after DEL.
func TestParallel(t *testing.T) {
	for _, mode := range []string{"agent", "plugins"} {
		atOnce := number("WEFT_LEAKS_AT_ONCE", 500)
		if mode == "plugins" {
			atOnce = min(atOnce, 50) // 2,500 concurrent processes would test the host's limits
		}
		if mode == "agent" && os.Getenv("WEFT_LEAKS_BIN_DIR") != "" {
			continue
		}
		t.Run(mode, func(t *testing.T) {
			n := newNode(t, mode == "agent")
			before := n.takeSnapshot()
			pods := make([]*pod, number("WEFT_LEAKS_PODS", 500))
			for i := range pods {
				pods[i] = n.pod()
			}
			var mu sync.Mutex
			seen := map[string]string{}
			retried := 0
			start := time.Now()
			each(pods, atOnce, func(p *pod) {
				ip, retries, err := n.attachAsRuntime(p)
				mu.Lock()
				defer mu.Unlock()
				retried += retries
				if err != nil {
					t.Errorf("ADD %s: %v", p.id, err)
				} else if other := seen[ip]; other != "" {
					t.Errorf("%s and %s both have %s", p.id, other, ip)
				}
				seen[ip] = p.id
			})
			added := time.Since(start)
			start = time.Now()
			each(pods, atOnce, func(p *pod) {
				if err := n.del(p); err != nil {
					t.Errorf("DEL %s: %v", p.id, err)
				}
			})
			t.Logf("%d pods, %d concurrent calls: ADD %v, %d retried, DEL %v", len(pods), atOnce, added.Round(time.Millisecond),
				retried, time.Since(start).Round(time.Millisecond))
			for _, p := range pods {
				n.removeNetns(p)
			}
			if _, left := n.leaks(before, 20*time.Second); len(left) > 0 {
				t.Errorf("left, %d objects: %.2000q", len(left), left)
			}
			if err := n.check(n.other); err != nil {
				t.Errorf("CHECK of the other pod: %v", err)
			}
		})
	}
}

// each calls f for all pods, atOnce concurrently.
func each(pods []*pod, atOnce int, f func(*pod)) {
	var wg sync.WaitGroup
	slots := make(chan struct{}, atOnce)
	for _, p := range pods {
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			f(p)
		})
	}
	wg.Wait()
}
