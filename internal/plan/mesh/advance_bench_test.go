// SPDX-License-Identifier: Apache-2.0

package mesh

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"

	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/state"
)

// BenchmarkJoin measures the plan of a node that joins and leaves again among 10,000 others: as a whole, and advanced.
func BenchmarkJoin(b *testing.B) {
	for _, backend := range []string{"host-gw", "vxlan", "ipip"} {
		c := &model.Cluster{Self: "n00000"}
		for i := range 10_001 {
			addr := netip.AddrFrom4([4]byte{172, 16, byte((i + 1) >> 8), byte(i + 1)})
			c.Nodes = append(c.Nodes, model.Node{
				Name: fmt.Sprintf("n%05d", i), Addrs: []netip.Addr{addr},
				PodCIDRs: []netip.Prefix{netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(i >> 8), byte(i), 0}), 24)},
				Published: &model.Published{
					Backend: backend, Addrs: []netip.Addr{addr},
					Data: fmt.Sprintf(`{"VNI":1,"VtepMAC":"0a:00:00:00:%02x:%02x"}`, i>>8, i&255),
				},
			})
		}
		cfg := Config{Backend: backend, Masquerade: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}}
		answers := state.Answers{
			state.Query{Space: state.Host, LinkOf: c.Nodes[0].Addrs[0]}: {
				Found: true, Link: state.Link{Name: "eth0", MTU: 1500},
				Addrs: []state.Addr{{Prefix: netip.MustParsePrefix("172.16.0.1/12")}},
			},
		}
		without := &model.Cluster{Self: c.Self, Nodes: slices.Delete(slices.Clone(c.Nodes), 5000, 5001)}
		b.Run(backend+"/whole", func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if t, err := Plan(c, cfg, answers); err != nil || len(t.Problems) > 0 {
					b.Fatal(err, t.Problems)
				}
			}
		})
		b.Run(backend+"/advanced", func(b *testing.B) {
			b.ReportAllocs()
			var v Previous
			if _, err := v.Plan(c, cfg, answers); err != nil {
				b.Fatal(err)
			}
			for i := range b.N {
				now := without
				if i%2 == 1 {
					now = c
				}
				if _, planned, ok := v.Advance(now, cfg, answers); !ok || planned != 1 {
					b.Fatal(ok, planned)
				}
			}
		})
	}
}
