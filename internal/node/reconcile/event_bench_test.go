// SPDX-License-Identifier: Apache-2.0

package reconcile_test

import (
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/weft-net/weft/internal/cluster/facts"
	"github.com/weft-net/weft/internal/cluster/store"
	"github.com/weft-net/weft/internal/kernel"
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/nettest"
	"github.com/weft-net/weft/internal/node/reconcile"
	"github.com/weft-net/weft/internal/plan/mesh"
)

// feed is a source of facts whose events the benchmark sends.
type feed chan store.Event

func (f feed) Watch(context.Context) (<-chan store.Event, error) { return f, nil }

func peerObject(b *testing.B, i int, backend string) store.Object {
	b.Helper()
	addr := netip.AddrFrom4([4]byte{172, 16, byte((i + 1) >> 8), byte(i + 1)})
	o, err := store.NodeObject(model.Node{
		Name: nodeName(i), Addrs: []netip.Addr{addr},
		PodCIDRs: []netip.Prefix{netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(i >> 8), byte(i), 0}), 24)},
		Published: &model.Published{
			Backend: backend, Addrs: []netip.Addr{addr}, Data: fmt.Sprintf(`{"VNI":1,"VtepMAC":"0a:00:00:00:%02x:%02x"}`, i>>8, i&255),
		},
	})
	if err != nil {
		b.Fatal(err)
	}
	return o
}

// BenchmarkEvent measures an event of one node among 10,000, which leaves or joins, from the datastore's event until the
// kernel has answered: facts, plan and the kernel's state, without the time for which facts wait for further events.
func BenchmarkEvent(b *testing.B) {
	for _, backend := range []string{"host-gw", "vxlan"} {
		b.Run(backend, func(b *testing.B) {
			const peers = 10_000
			ns := nettest.NS(b, "node")
			for _, args := range []string{
				"link set lo up", "link add eth0 type veth peer name far", "link set eth0 up", "link set far up",
				"addr add 172.16.0.1/12 dev eth0",
			} {
				nettest.IP(b, ns, args)
			}
			conn, err := kernel.Dial(ns)
			if err != nil {
				b.Fatal(err)
			}
			defer func() { _ = conn.Close() }()
			events, now := make(feed, peers+2), make(chan time.Time)
			close(now)
			log := slog.New(slog.DiscardHandler)
			f := facts.New(events, nodeName(0), log, func(time.Duration) <-chan time.Time { return now })
			passed := make(chan int, 8)
			r := reconcile.New(reconcile.Config{
				Facts: f, Host: conn, NS: ns, Log: log, Now: time.Now, After: time.After,
				Mesh: mesh.Config{Backend: backend, Masquerade: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}},
				Passed: func(s reconcile.Status) {
					if s.Error != "" {
						b.Error(s.Error)
					}
					passed <- len(s.Topology.Peers)
				},
			})
			for i := range peers + 1 {
				events <- store.Event{Type: store.Added, Object: peerObject(b, i, backend)}
			}
			events <- store.Event{Type: store.Synced}
			ctx, cancel := context.WithCancel(b.Context())
			var running sync.WaitGroup
			running.Go(func() { _ = f.Run(ctx) })
			running.Go(func() { _ = r.Run(ctx) })
			defer func() { cancel(); close(events); running.Wait() }()
			until := func(want int) {
				for have := range passed {
					if have == want {
						return
					}
				}
			}
			until(peers)
			// Several leave before the first joins again: its route's notification would be taken for another program's.
			const moving = 16
			var objects [moving]store.Object
			for i := range objects {
				objects[i] = peerObject(b, peers/2+i*100, backend)
			}
			took := map[store.EventType][]time.Duration{}
			b.ReportAllocs()
			b.ResetTimer()
			used := cpuTime(b)
			for i := range b.N {
				kind, want := store.Deleted, peers-1-i%moving
				if i/moving%2 == 1 {
					kind, want = store.Added, peers-moving+1+i%moving
				}
				begin := time.Now()
				events <- store.Event{Type: kind, Object: objects[i%moving]}
				until(want)
				took[kind] = append(took[kind], time.Since(begin))
			}
			b.StopTimer()
			b.ReportMetric(float64((cpuTime(b)-used).Microseconds())/float64(b.N), "cpu-µs/op")
			for kind, all := range took {
				slices.Sort(all)
				b.ReportMetric(float64(all[len(all)/2].Microseconds()), "µs/"+string(kind))
			}
		})
	}
}

// cpuTime is the processor time of this process.
func cpuTime(b *testing.B) time.Duration {
	b.Helper()
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
