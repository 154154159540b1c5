// SPDX-License-Identifier: Apache-2.0

package attach_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/weft-net/weft/internal/netns"
)

// BenchmarkCycle is ADD and DEL in process, with the ledger and a new namespace each time.
func BenchmarkCycle(b *testing.B) {
	ptp := strings.Replace(bridge, `"type":"bridge","bridge":"abr0","isDefaultGateway":true`, `"type":"ptp"`, 1)
	routed := `{"type":"calico","mtu":1400,"ipam":{"type":"host-local","subnet":"usePodCidr","dataDir":"DATA"}}`
	for name, conf := range map[string]string{"bridge": bridge, "ptp": ptp, "routed": routed} {
		b.Run(name, func(b *testing.B) {
			n := routedNode(b)
			store, ns := n.pod()
			n.add(n.job(n.list(conf), store, ns))
			var add, del time.Duration
			for i := 0; b.Loop(); i++ {
				path := b.TempDir() + "/ns"
				ns, err := netns.New(path)
				if err != nil {
					b.Fatal(err)
				}
				job := n.job(n.list(conf), fmt.Sprintf("bench%d", i), ns)
				start := time.Now()
				if _, err := n.Add(b.Context(), job); err != nil {
					b.Fatal(err)
				}
				add += time.Since(start)
				start = time.Now()
				if err := n.Del(b.Context(), job); err != nil {
					b.Fatal(err)
				}
				del += time.Since(start)
				if err := errors.Join(ns.Close(), netns.Remove(path)); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(add.Microseconds())/float64(b.N), "µs/ADD")
			b.ReportMetric(float64(del.Microseconds())/float64(b.N), "µs/DEL")
		})
	}
}
