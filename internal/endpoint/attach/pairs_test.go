// SPDX-License-Identifier: Apache-2.0

package attach_test

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/weft-net/weft/internal/netns"
	"github.com/weft-net/weft/internal/nettest"
)

// TestPairs does ADD and DEL of eth0 in the same namespaces again and again, 50 at once, each ADD right behind the DEL
// before it: none fails. After each burst of DELs the links are gone, by the reaper alone. There are 5,000,
// 200 under go test -short, or WEFT_FAULTS_PAIRS.
func TestPairs(t *testing.T) {
	const atOnce, each = 50, 2
	pairs := 5000
	if testing.Short() {
		pairs = 200
	}
	if text := os.Getenv("WEFT_FAULTS_PAIRS"); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil {
			t.Fatalf("WEFT_FAULTS_PAIRS %q is no number", text)
		}
		pairs = n
	}
	n := newNode(t)
	conf := n.list(bridge)
	pods := make([]*netns.NS, atOnce)
	for i := range pods {
		pods[i] = nettest.NS(t, fmt.Sprint("pod", i))
	}
	var slowest time.Duration
	for done := 0; done < pairs; done += atOnce * each {
		var g errgroup.Group
		for i, ns := range pods {
			var calls [each]func() error
			for k := range each {
				job := n.job(conf, fmt.Sprintf("c%d-%d", done+k, i), ns)
				calls[k] = func() error {
					_, err := n.Add(t.Context(), job)
					return errors.Join(err, n.Del(t.Context(), job))
				}
			}
			g.Go(func() error {
				for _, call := range calls {
					if err := call(); err != nil {
						return err
					}
				}
				return nil
			})
		}
		if err := g.Wait(); err != nil {
			t.Errorf("after %d pairs: %v", done, err)
		}
		start := time.Now()
		for left := "first"; left != ""; {
			left = strings.TrimSpace(nettest.Run(t, nil, "ip", "-o", "link", "show", "type", "veth"))
			if time.Since(start) > time.Minute {
				t.Fatalf("after %d pairs links are there a minute after their DEL: %s", done, left)
			}
		}
		slowest = max(slowest, time.Since(start))
	}
	t.Logf("%d pairs, %d at once; the links were gone after at most %s", pairs, atOnce, slowest.Round(time.Millisecond))
}
