// SPDX-License-Identifier: Apache-2.0

package blocks

import (
	"fmt"
	"testing"
	"time"

	"github.com/weft-net/weft/internal/cluster/store"
	"github.com/weft-net/weft/internal/model"
)

// still configures a node with a stopped clock, and the objects of a heap.
func still(h *heap, now *time.Time) func(*Config) {
	return func(c *Config) {
		c.Objects.(*line).Objects = h
		c.Now = func() time.Time { return *now }
		c.After = func(time.Duration) <-chan time.Time { ch := make(chan time.Time, 1); ch <- *now; return ch }
	}
}

// TestTenMinutesWithoutStore: for ten minutes pods come and go every second on two nodes without a datastore, and one
// of them is restarted meanwhile. No ADD fails, no address is twice, and afterwards the nodes continue as before.
func TestTenMinutesWithoutStore(t *testing.T) {
	now := time.Unix(1e9, 0)
	_, path := cluster(t, nil)
	h := newHeap(t, poolYAML("p", "10.1.0.0/20", 26), nodeYAML("a"), nodeYAML("b"))
	nodes := []*node{join(t, path, "a", still(h, &now)), join(t, path, "b", still(h, &now))}
	next := 0
	churn := func() {
		t.Helper()
		for _, n := range nodes {
			next++
			if _, err := n.addCluster(calicoConf(), fmt.Sprint("c", next), model.AddressRequest{}); err != nil {
				t.Fatalf("%s: %v", now, err)
			}
			if len(n.ledger) > 40 {
				oldest := ""
				for k := range n.ledger {
					if oldest == "" || len(k.ContainerID) < len(oldest) ||
						len(k.ContainerID) == len(oldest) && k.ContainerID < oldest {
						oldest = k.ContainerID
					}
				}
				n.del(oldest)
			}
			_ = n.engine.Reconcile(t.Context())
		}
		now = now.Add(time.Second)
		checkOnce(t, nodes...)
	}
	for range 60 {
		churn()
	}
	for _, n := range nodes {
		n.line.set(true, false)
	}
	for i := range 600 {
		if churn(); i == 300 {
			nodes[0].start()
		}
	}
	for _, n := range nodes {
		n.line.set(false, false)
	}
	for range 60 {
		churn()
	}
	for _, n := range nodes {
		for k := range n.ledger {
			n.del(k.ContainerID)
		}
		for range 8 {
			now = now.Add(4 * time.Minute)
			_ = n.engine.Reconcile(t.Context())
		}
	}
	for key := range h.objects {
		if key.Kind == "AddressBlock" {
			t.Errorf("%s is left", key)
		}
	}
}

// TestTwoOwnersOfABlock: a node that was unreachable for so long that its object is gone loses its block to another
// one. When it comes back it allocates nothing of it, whatever its memory and its journal say, also after a restart.
func TestTwoOwnersOfABlock(t *testing.T) {
	now := time.Unix(1e9, 0)
	_, path := cluster(t, nil)
	h := newHeap(t, poolYAML("p", "10.1.0.0/28", 29), nodeYAML("a"), nodeYAML("b"))
	a, b := join(t, path, "a", still(h, &now)), join(t, path, "b", still(h, &now))
	if _, err := a.addCluster(calicoConf(), "a1", model.AddressRequest{}); err != nil {
		t.Fatal(err)
	}
	_ = a.engine.Reconcile(t.Context())
	a.del("a1")
	a.line.set(true, false)
	object := h.objects[store.NodeKey("a")]
	delete(h.objects, object.Key)
	for i := range 16 { // all of the pool
		if _, err := b.addCluster(calicoConf(), fmt.Sprint("b", i), model.AddressRequest{}); err != nil {
			now = now.Add(11 * time.Minute)
			_ = b.engine.Reconcile(t.Context())
			if _, err := b.addCluster(calicoConf(), fmt.Sprint("b", i), model.AddressRequest{}); err != nil {
				t.Fatalf("address %d of b: %v", i, err)
			}
		}
	}
	a.line.set(false, false)
	h.put(object)
	for _, restart := range []bool{false, true} {
		if restart {
			a.start()
		}
		_ = a.engine.Reconcile(t.Context())
		if got, err := a.addCluster(calicoConf(), fmt.Sprint("a", restart), model.AddressRequest{}); err == nil {
			t.Errorf("a gives %s, which b has", got)
		}
	}
	checkOnce(t, a, b)
}
