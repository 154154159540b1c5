// SPDX-License-Identifier: Apache-2.0

package blocks

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"testing"
	"time"

	"github.com/weft-net/weft/internal/cluster/store"
	"github.com/weft-net/weft/internal/model"
)

// TestRestoredDatastore: the datastore is restored from a backup: blocks that were claimed since are missing, and those
// that were released since are back, also where another node has them. When the nodes have seen that, no address of a
// running pod is allocated again, and when all pods are gone no block is left.
func TestRestoredDatastore(t *testing.T) {
	for seed := range uint64(40) {
		h := newHistory(t, seed)
		h.rand = rand.New(rand.NewPCG(seed, 11))
		h.live(150)
		backup := maps.Clone(h.dir.objects)
		h.live(150)
		h.restore(backup)
		for _, late := range []bool{false, true} { // the second time they have seen what the others wrote
			for _, i := range h.rand.Perm(len(h.names)) {
				h.resync(h.nodes[h.names[i]])
				for range 3 {
					h.start1(h.nodes[h.names[i]])
				}
				if late {
					h.now = h.now.Add(restoreGrace)
				}
			}
		}
		h.live(300)
		for _, name := range h.names {
			for k := range maps.Clone(h.nodes[name].ledger) {
				h.nodes[name].del(k.ContainerID)
			}
		}
		clear(h.has)
		h.settle()
		all, err := h.dir.List(context.Background(), store.AddressBlocks())
		if err != nil {
			t.Fatal(err)
		}
		for _, o := range all {
			t.Errorf("seed %d: a block is left when all pods are gone: %s", seed, o.Raw)
		}
		if t.Failed() {
			return
		}
	}
}

// restore replaces all objects by those of a backup, under versions that no node has seen.
func (h *history) restore(backup map[store.Key]store.Object) {
	for key := range maps.Clone(h.dir.objects) {
		delete(h.dir.objects, key)
	}
	for _, o := range backup {
		h.dir.put(o)
	}
}

// resync is what a node does when its watch has been broken: it lists, and objects that are missing count as deleted.
func (h *history) resync(n *node) {
	n.engine.state.mu.Lock()
	n.engine.state.synced = false
	n.engine.state.mu.Unlock()
	h.reconcileAll(n)
}

// live lets pods come and go on all nodes.
func (h *history) live(operations int) {
	for range operations {
		n := h.nodes[h.names[h.rand.IntN(len(h.names))]]
		switch p := h.rand.IntN(100); {
		case p < 45:
			h.start1(n)
		case p < 85:
			h.del(n)
		case p < 95:
			h.reconcile(n)
		default:
			h.now = h.now.Add(time.Duration(1+h.rand.IntN(120)) * time.Second)
		}
	}
}

// start1 starts a pod, if a node has an address for it. There are so few that no pool becomes exhausted.
func (h *history) start1(n *node) {
	if len(h.has) >= 100 {
		return
	}
	h.next++
	id := fmt.Sprint("c", h.next)
	if _, err := n.addCluster(calicoConf(), id, model.AddressRequest{}); err != nil {
		return
	}
	for _, a := range n.ledger[key(id)] {
		if by, twice := h.has[a]; twice {
			h.t.Fatalf("address %s is given to %s of node %s, and %s has it", a, id, n.name, by)
		}
		h.has[a] = n.name + "/" + id
	}
}

// TestRestoredBlocks: nothing is allocated from a block that the backup has in a node's name, and no node claims one that
// the backup lacks, until the node that has pods there has seen the backup.
func TestRestoredBlocks(t *testing.T) {
	want := model.AddressRequest{Addrs: []netip.Addr{netip.MustParseAddr("10.1.0.5")}}
	neighbor := model.AddressRequest{Addrs: []netip.Addr{netip.MustParseAddr("10.1.0.6")}}
	for _, missing := range []bool{false, true} {
		t.Run(fmt.Sprint("missing ", missing), func(t *testing.T) {
			h := newHistory(t, 1)
			first, second := h.nodes["n1"], h.nodes["n2"]
			far := model.AddressRequest{Addrs: []netip.Addr{netip.MustParseAddr("10.1.0.99")}}
			if _, err := first.addCluster(calicoConf(), "far", far); err != nil { // it follows the pool
				t.Fatal(err)
			}
			backup := maps.Clone(h.dir.objects)
			if !missing { // the first node has the block in the backup, and released it later
				if _, err := first.addCluster(calicoConf(), "early", want); err != nil {
					t.Fatal(err)
				}
				backup = maps.Clone(h.dir.objects)
				first.del("early")
				h.settle()
			}
			if _, err := second.addCluster(calicoConf(), "pod", want); err != nil {
				t.Fatal(err)
			}
			h.resync(first)
			h.restore(backup)
			try := func(when string) {
				t.Helper()
				if a, err := first.addCluster(calicoConf(), "late", want); err == nil {
					t.Fatalf("%s: address %v is given twice", when, a)
				}
			}
			h.resync(first)
			try("before the other node has seen the backup")
			h.resync(second)
			h.resync(second) // what it has written
			h.resync(first)
			h.now = h.now.Add(restoreGrace)
			try("afterwards")
			who := map[bool]*node{false: first, true: second}[missing]
			if _, err := who.addCluster(calicoConf(), "next", neighbor); err != nil {
				t.Errorf("the rest of the block: %v", err)
			}
		})
	}
}
