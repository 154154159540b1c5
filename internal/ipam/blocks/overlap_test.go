// SPDX-License-Identifier: Apache-2.0

package blocks

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/weft-net/weft/internal/cluster/store"
	"github.com/weft-net/weft/internal/model"
)

// overlapped is a cluster whose pool "old" gets the region of "young" while that one's addresses are in use.
func overlapped(t *testing.T, size int) (h *heap, overlap func()) {
	h = newHeap(t, poolYAML("old", "10.1.0.0/27", max(size, 28)), poolYAML("young", "10.2.0.0/28", 30))
	return h, func() { widen(t, h, "old", "10.2.0.0/28", size) }
}

// widen adds a region to a pool.
func widen(t *testing.T, h *heap, name, cidr string, size int) {
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
	spec.Regions = append(spec.Regions, model.AddressRegion{CIDR: netip.MustParsePrefix(cidr), BlockSize: size})
	next, err := store.AddressPoolObject(o, spec)
	if err == nil {
		_, err = h.CompareAndSwap(context.Background(), k, o.Version, next)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// at is a node of a heap, which does not wait.
func at(t *testing.T, h *heap, name string, step func(string) error, now func() time.Time) *node {
	_, path := cluster(t, nil)
	return join(t, path, name, func(c *Config) {
		c.Objects.(*line).Objects = h
		c.Failpoint, c.Now = step, now
		c.After = func(time.Duration) <-chan time.Time { ch := make(chan time.Time, 1); ch <- now(); return ch }
	})
}

// reconcile has a node learn of the pools and blocks as they are, and work.
func (n *node) reconcile() {
	n.t.Helper()
	n.engine.state.mu.Lock()
	n.engine.state.synced = false
	n.engine.state.mu.Unlock()
	h := history{t: n.t.(*testing.T)}
	h.reconcileAll(n)
}

// TestOverlap: a pool that gets addresses which a younger pool has allocates none of those that are in use, nor any of
// their blocks, whatever the sizes of the blocks; and all of them when they are back.
func TestOverlap(t *testing.T) {
	for _, size := range []int{28, 30, 32} {
		t.Run(fmt.Sprint(size), func(t *testing.T) {
			h, overlap := overlapped(t, size)
			now := time.Unix(1e9, 0)
			clock := func() time.Time { return now }
			n1, n2 := at(t, h, "n1", nil, clock), at(t, h, "n2", nil, clock)
			var used []string
			for i := range 2 {
				a, err := n1.addCluster(calicoConf(), fmt.Sprint("first", i), model.AddressRequest{Pools4: []string{"young"}})
				if err != nil {
					t.Fatal(err)
				}
				used = append(used, a)
			}
			overlap()
			n1.reconcile()
			n2.reconcile()
			for _, n := range []*node{n2, n1} {
				specific := netip.MustParsePrefix(used[0]).Addr()
				_, err := n.addCluster(calicoConf(), "certain"+n.name, model.AddressRequest{Addrs: []netip.Addr{specific}})
				var f *model.Error
				if !errors.As(err, &f) || f.Code != model.CodeExhausted ||
					!strings.Contains(err.Error(), "is taken by pool young, whose block 10.2.0.") {
					t.Errorf("node %s, address %s: %v", n.name, specific, err)
				}
			}
			seen := map[string]bool{used[0]: true, used[1]: true}
			for i := range 60 {
				for _, n := range []*node{n1, n2} {
					a, err := n.addCluster(calicoConf(), fmt.Sprint("more", i), model.AddressRequest{})
					if err == nil && seen[a] {
						t.Fatalf("address %s is given twice", a)
					}
					seen[a] = true
				}
			}
			for _, id := range []string{"first0", "first1"} {
				n1.del(id)
			}
			for range 4 {
				now = now.Add(10 * time.Minute)
				n1.reconcile()
				n2.reconcile()
			}
			again := model.AddressRequest{Addrs: []netip.Addr{netip.MustParsePrefix(used[0]).Addr()}}
			_, err1 := n1.addCluster(calicoConf(), "again", again) // it may have a block of the older pool there by now
			_, err2 := n2.addCluster(calicoConf(), "again", again)
			if (err1 == nil) == (err2 == nil) {
				t.Errorf("when it is back: %v, %v", err1, err2)
			}
		})
	}
}

// TestOverlapAtOnce: two nodes claim blocks of two pools with the same addresses at the same time, one of them before
// it hears that the pools overlap; and one of them is killed before it has looked.
func TestOverlapAtOnce(t *testing.T) {
	for _, killed := range []bool{false, true} {
		t.Run(fmt.Sprint("killed ", killed), func(t *testing.T) {
			h, overlap := overlapped(t, 28)
			n1 := at(t, h, "n1", nil, time.Now)
			if _, err := n1.addCluster(calicoConf(), "warm", model.AddressRequest{Pools4: []string{"old"}}); err != nil {
				t.Fatal(err) // n1 knows the pools, as they were
			}
			wish := model.AddressRequest{Addrs: []netip.Addr{netip.MustParseAddr("10.2.0.5")}}
			found, now := false, time.Now()
			n2 := at(t, h, "n2", func(step string) error {
				if step != "after create" || found {
					return nil
				}
				found = true
				if _, err := n1.addCluster(calicoConf(), "one", wish); err == nil {
					t.Error("the younger pool gives an address of a block that the older one's node has claimed")
				}
				if killed {
					return errCrash
				}
				return nil
			}, func() time.Time { return now })
			overlap()
			_, err := n2.addCluster(calicoConf(), "two", wish)
			if !found {
				t.Fatal("nothing was claimed")
			}
			if killed {
				if !errors.Is(err, errCrash) {
					t.Fatal(err)
				}
				n2.start()
				n2.reconcile()
				now = now.Add(restoreGrace)
				if _, err := n2.addCluster(calicoConf(), "two", wish); err != nil {
					t.Errorf("after the restart: %v", err)
				}
			} else if err != nil {
				t.Errorf("nobody has the address: %v", err)
			}
			if a, err := n1.addCluster(calicoConf(), "three", wish); err == nil {
				t.Errorf("address %s is given twice", a)
			}
		})
	}
}

// TestOverlapBetween: a block of another pool that comes between a node's look and its claim has the addresses.
func TestOverlapBetween(t *testing.T) {
	h, overlap := overlapped(t, 28)
	wish := model.AddressRequest{Addrs: []netip.Addr{netip.MustParseAddr("10.2.0.5")}}
	armed, given := false, ""
	n1 := at(t, h, "n1", func(step string) (err error) {
		if step != "before create" || !armed {
			return nil
		}
		armed = false
		overlap()
		given, err = at(t, h, "n2", nil, time.Now).addCluster(calicoConf(), "two", wish)
		return err
	}, time.Now)
	if _, err := n1.addCluster(calicoConf(), "warm", model.AddressRequest{Pools4: []string{"old"}}); err != nil {
		t.Fatal(err) // it knows the pools, as they were
	}
	armed = true
	a, err := n1.addCluster(calicoConf(), "one", wish)
	if armed || given == "" {
		t.Fatalf("nothing came between: %v", err)
	}
	if err == nil {
		t.Errorf("address %s is given twice: to node n2 it was %s", a, given)
	}
}
