// SPDX-License-Identifier: Apache-2.0

package blocks

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/weft-net/weft/internal/cluster/store"
	"github.com/weft-net/weft/internal/model"
)

// TestHistory: more than 100,000 operations, and never an address twice; in the end every address can be had, and when
// all pods are gone, no block is left.
func TestHistory(t *testing.T) {
	ops := 105_000
	if testing.Short() {
		ops = 10_000
	}
	h := newHistory(t, 1)
	for i := range ops {
		h.act()
		if i%1000 == 0 {
			h.overlaps()
			h.checkClaims()
		}
	}
	t.Logf("%d operations, %d engines killed: %v", ops, h.kills, h.done)
	for h.disabled {
		h.pool()
	}
	for _, name := range h.names {
		n := h.nodes[name]
		n.line.set(false, false)
		n.line.late = false
		n.line.deliver()
		h.steps[name] = -1
	}
	h.deleteVMs()
	if h.overlaid == 0 {
		t.Error("no pool came to overlap with another")
	}
	// what a pool has that allocates nothing more comes back when its pods are gone
	h.delIn(netip.MustParsePrefix("10.5.0.0/16"))
	h.settle()
	const want = 255 + 32 + 32*overlappingPools
	for range 600 { // all that is left, by turns
		if h.add2(); len(h.four()) >= want {
			break
		}
	}
	if len(h.four()) != want {
		t.Errorf("%d of %d IPv4 addresses can be had", len(h.four()), want)
	}
	for _, name := range h.names {
		for k := range maps.Clone(h.nodes[name].ledger) {
			h.nodes[name].del(k.ContainerID)
		}
	}
	h.has = map[netip.Addr]string{}
	h.settle()
	all, err := h.dir.List(context.Background(), store.AddressBlocks())
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range all {
		t.Errorf("a block is left when all pods are gone: %s", o.Raw)
	}
}

// delIn deletes the pods with an address in a prefix.
func (h *history) delIn(in netip.Prefix) {
	for _, name := range h.names {
		for k, addrs := range maps.Clone(h.nodes[name].ledger) {
			if !slices.ContainsFunc(addrs, in.Contains) {
				continue
			}
			for _, a := range addrs {
				delete(h.has, a)
			}
			h.nodes[name].del(k.ContainerID)
		}
	}
}

// settle lets time pass, and all nodes work, until nothing is pending: there were no writes for longer than it takes a
// host to take over its predecessor's blocks.
func (h *history) settle() {
	const step, most = 4 * time.Minute, 200
	quiet, version := time.Duration(0), 0
	for range most {
		h.now = h.now.Add(step)
		for _, name := range h.names {
			h.reconcile(h.nodes[name])
		}
		if quiet += step; h.dir.version != version {
			quiet, version = 0, h.dir.version
		}
		if quiet > 2*unusedTime {
			return
		}
	}
	h.t.Errorf("nodes still write after %s in which nothing happened", most*step)
}

// add2 has every node take an IPv4 address if it can, and work.
func (h *history) add2() {
	h.now = h.now.Add(time.Second)
	for _, name := range h.names {
		n := h.nodes[name]
		h.next++
		id := fmt.Sprint("c", h.next)
		if _, err := n.addCluster(calicoConf(), id, model.AddressRequest{}); err == nil {
			for _, a := range n.ledger[key(id)] {
				if by, twice := h.has[a]; twice {
					h.t.Fatalf("address %s is given to %s of node %s, and %s has it", a, id, n.name, by)
				}
				h.has[a] = n.name + "/" + id
			}
			continue
		}
		h.reconcile(n)
	}
}

func (h *history) four() (out []netip.Addr) {
	for a := range h.has {
		if a.Is4() {
			out = append(out, a)
		}
	}
	return out
}
