// SPDX-License-Identifier: Apache-2.0

package blocks

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weft-net/weft/internal/cluster/store"
	"github.com/weft-net/weft/internal/ipam/blockjournal"
	"github.com/weft-net/weft/internal/model"
)

// narrow takes a region away from a pool.
func narrow(t *testing.T, h *heap, name, cidr string) {
	t.Helper()
	k := store.AddressPools()
	o, err := h.Get(context.Background(), k, k.Key("", name))
	if err != nil {
		t.Fatal(err)
	}
	spec, err := o.AddressPool()
	if err != nil {
		t.Fatal(err)
	}
	spec.Regions = slices.DeleteFunc(spec.Regions, func(r model.AddressRegion) bool {
		return r.CIDR == netip.MustParsePrefix(cidr)
	})
	next, err := store.AddressPoolObject(o, spec)
	if err == nil {
		_, err = h.CompareAndSwap(context.Background(), k, o.Version, next)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// hear sends the objects of a kind to a node as events of a watch, and reconciles it.
func (n *node) hear(h *heap, kind store.Kind) {
	n.t.Helper()
	all, err := h.List(context.Background(), kind)
	if err != nil {
		n.t.Fatal(err)
	}
	n.engine.state.setWatching(true)
	for _, o := range all {
		n.engine.reconciler.handleEvent(store.Event{Type: store.Modified, Object: o})
	}
	if err := n.engine.reconciler.reconcile(context.Background()); err != nil {
		n.t.Fatal(err)
	}
}

// TestMovedRegion: users move a region from one pool to another while pods have addresses of it. Whichever engine
// restarts meanwhile, with its journal or without, and whatever events it has seen: none of these addresses is
// allocated a second time, and all of them are allocatable from the other pool after their release.
func TestMovedRegion(t *testing.T) {
	const moved = "10.2.0.0/28"
	for _, c := range []struct {
		name  string
		after func(n1, n2 *node)
	}{
		{"nobody starts", func(_, _ *node) {}},
		{"who has them starts", func(n1, _ *node) { n1.start() }},
		{"without its journal", func(n1, _ *node) {
			_ = os.Remove(blockjournal.Path(n1.config.Dir))
			n1.start()
		}},
		{"the other one starts", func(_, n2 *node) { n2.start() }},
		{"both start", func(n1, n2 *node) { n1.start(); n2.start() }},
	} {
		for _, size := range []int{28, 30, 31} {
			t.Run(fmt.Sprint(c.name, ", blocks of /", size), func(t *testing.T) {
				h := newHeap(t, poolYAML("old", "10.1.0.0/28", 30), poolYAML("young", moved, 30, "  nodeSelector: all()\n"))
				widen(t, h, "young", "10.3.0.0/28", 30) // it continues with that
				now := time.Unix(1e9, 0)
				clock := func() time.Time { return now }
				n1, n2 := at(t, h, "n1", nil, clock), at(t, h, "n2", nil, clock)
				if _, err := n2.addCluster(calicoConf(), "warm", model.AddressRequest{Pools4: []string{"old"}}); err != nil {
					t.Fatal(err)
				}
				n2.reconcile()
				seen := map[string]bool{}
				for i := range 3 {
					a, err := n1.addCluster(calicoConf(), fmt.Sprint("first", i), model.AddressRequest{
						Addrs: []netip.Addr{netip.AddrFrom4([4]byte{10, 2, 0, byte(5 * i)})},
					})
					if err != nil {
						t.Fatal(err)
					}
					seen[a] = true
				}
				n2.hear(h, store.AddressBlocks())
				narrow(t, h, "young", moved)
				widen(t, h, "old", moved, size)
				c.after(n1, n2)
				more := func(round int) {
					t.Helper()
					for i := range 40 {
						for _, n := range []*node{n2, n1} {
							id := fmt.Sprintf("more%d-%d", round, i)
							if a, err := n.addCluster(calicoConf(), id, model.AddressRequest{Pools4: []string{"old", "young"}}); err == nil {
								if seen[a] {
									t.Fatalf("address %s is given twice", a)
								}
								seen[a] = true
							}
						}
					}
				}
				n2.hear(h, store.AddressPools())
				more(0)
				for round := range 3 {
					now = now.Add(20 * time.Minute)
					n1.reconcile()
					n2.reconcile()
					more(1 + round)
				}
				for _, addr := range slices.Collect(maps.Keys(seen)) { // all of it comes back
					if strings.HasPrefix(addr, "10.2.") {
						delete(seen, addr)
					}
				}
				for _, n := range []*node{n1, n2} {
					for k, addrs := range n.ledger {
						if strings.HasPrefix(addrs[0].String(), "10.2.") {
							n.del(k.ContainerID)
						}
					}
				}
				for range 6 {
					now = now.Add(20 * time.Minute)
					n1.reconcile()
					n2.reconcile()
				}
				more(9)
				for i := range 16 {
					if a := fmt.Sprintf("10.2.0.%d/32", i); !seen[a] {
						t.Errorf("address %s is back, and nobody gets it", a)
					}
				}
			})
		}
	}
}
