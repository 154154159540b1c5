// SPDX-License-Identifier: Apache-2.0

package blocks

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/weft-net/weft/internal/cluster/store"
	"github.com/weft-net/weft/internal/ipam/claims"
	"github.com/weft-net/weft/internal/model"
)

// wishes is runs for a certain address, which the node that has it gives.
func (n *node) wishes(t *testing.T, has *node, vm, id string, addr netip.Addr) {
	t.Helper()
	n.engine.cfg.Step = func(name string) error {
		if name == "after swap" {
			has.engine.freshenAll(t)
		}
		return nil
	}
	defer func() { n.engine.cfg.Step = nil }()
	ask := n.machineAsk(vm, id, calicoConf())
	ask.Wishes.Addrs = []netip.Addr{addr}
	result, err := n.engine.Allocators()[2].Add(t.Context(), ask)
	if err != nil || len(result.IPs) != 1 || result.IPs[0].Address.Addr() != addr {
		t.Fatalf("%v, error %v, want %s", result, err, addr)
	}
	n.ledger[key(id)], n.confs[key(id)] = []netip.Addr{addr}, string(ask.Conf)
}

// TestMachineTakenBackAndKilled: a node that takes the address of a machine back into its own block may die at any step
// of that. What comes after it gives the address to nobody else.
func TestMachineTakenBackAndKilled(t *testing.T) {
	for at := 1; ; at++ {
		a, b, now, _ := machines(t)
		first, err := a.addCluster(calicoConf(), "first", model.AddressWishes{}) // the block is this node's
		if err != nil {
			t.Fatal(err)
		}
		wish := netip.MustParsePrefix(first).Addr().Next()
		b.wishes(t, a, "db", "one", wish) // of that block: this node does not know that it is promised
		b.wishes(t, a, "web", "two", wish.Next())
		b.del("one")
		b.del("two")
		a.engine.freshenAll(t)
		addr := wish.String()
		steps := 0
		a.engine.cfg.Step = func(string) error {
			if steps++; steps >= at {
				return errCrash
			}
			return nil
		}
		if got := a.runs("db", "four", false); got == addr { // no step was left to die at
			if at < 4 {
				t.Errorf("the machine was back after %d steps: that tries nothing", at)
			}
			return
		}
		a.start()
		is(t, "another machine", a.runs("web", "three", false), wish.Next().String()) // with this the block is written anew
		*now = now.Add(time.Hour)
		for i := range 32 {
			id := "other" + strings.Repeat("x", i)
			if got, err := a.addCluster(calicoConf(), id, model.AddressWishes{}); err == nil && got == addr+"/32" {
				t.Fatalf("killed at step %d: the machine's address %s is given to container %s", at, addr, id)
			}
		}
		checkOnce(t, a, b)
	}
}

// TestSingleByALostAnswer: of an address that another node ceded, the claim was written anew and the answer was lost.
// It is this node's still, and goes back when nobody has it any more.
func TestSingleByALostAnswer(t *testing.T) {
	for _, restarted := range []bool{false, true} {
		a, b, now, _ := machines(t)
		first, err := a.addCluster(calicoConf(), "first", model.AddressWishes{})
		if err != nil {
			t.Fatal(err)
		}
		addr := netip.MustParsePrefix(first).Addr().Next()
		b.wishes(t, a, "db", "one", addr)
		p := b.engine.mem.pools["four"]
		single := p.blocks[netip.PrefixFrom(addr, 32)]
		b.line.set(false, true)
		if _, err := b.engine.affinity.grab(t.Context(), p, addr, claims.In(single.claim), single.object,
			single.spec); err == nil {
			t.Fatal("the answer arrived")
		}
		b.line.set(false, false)
		if restarted {
			b.start()
		}
		b.engine.freshenAll(t)
		if !b.engine.Holds(addr) {
			t.Errorf("restarted: %t: the address is lost", restarted)
		}
		b.del("one")
		if err := b.line.Objects.Delete(t.Context(), store.AddressClaims(),
			store.AddressClaims().Key("shop", (&model.VMRef{Namespace: "shop", Name: "db"}).Promise("net", "net1")),
			""); err != nil {
			t.Fatal(err)
		}
		for range 8 {
			*now = now.Add(time.Hour)
			b.engine.freshenAll(t)
		}
		if b.engine.Holds(addr) {
			t.Errorf("restarted: %t: the address does not go back", restarted)
		}
	}
}
