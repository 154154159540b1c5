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

// podRequest is runs for a specific address, which the node that has it lends.
func (n *node) podRequest(t *testing.T, has *node, vm, id string, addr netip.Addr) {
	t.Helper()
	n.engine.cfg.Failpoint = func(name string) error {
		if name == "after swap" {
			has.engine.freshenAll(t)
		}
		return nil
	}
	defer func() { n.engine.cfg.Failpoint = nil }()
	req := n.vmRequest(vm, id, calicoConf())
	req.PodRequest.Addrs = []netip.Addr{addr}
	result, err := n.engine.Allocators()[2].Add(t.Context(), req)
	if err != nil || len(result.IPs) != 1 || result.IPs[0].Address.Addr() != addr {
		t.Fatalf("%v, error %v, want %s", result, err, addr)
	}
	n.ledger[key(id)], n.confs[key(id)] = []netip.Addr{addr}, string(req.Conf)
}

// TestVMReclaimedAndKilled: a node that reclaims the address of a VM into its own block may be killed at any step of
// that. The next engine allocates the address to nothing else.
func TestVMReclaimedAndKilled(t *testing.T) {
	for at := 1; ; at++ {
		a, b, now, _ := hosts(t)
		first, err := a.addCluster(calicoConf(), "first", model.AddressRequest{}) // the block is this node's
		if err != nil {
			t.Fatal(err)
		}
		wish := netip.MustParsePrefix(first).Addr().Next()
		b.podRequest(t, a, "db", "one", wish) // of that block: this node does not know the claim
		b.podRequest(t, a, "web", "two", wish.Next())
		b.del("one")
		b.del("two")
		a.engine.freshenAll(t)
		addr := wish.String()
		steps := 0
		a.engine.cfg.Failpoint = func(string) error {
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
		is(t, "another machine", a.runs("web", "three", false), wish.Next().String()) // this writes the block again
		*now = now.Add(time.Hour)
		for i := range 32 {
			id := "other" + strings.Repeat("x", i)
			if got, err := a.addCluster(calicoConf(), id, model.AddressRequest{}); err == nil && got == addr+"/32" {
				t.Fatalf("killed at failpoint %d: the VM's address %s is allocated to container %s", at, addr, id)
			}
		}
		checkOnce(t, a, b)
	}
}

// TestSingleByALostAnswer: the claim of a borrowed address was written again and the response was lost. It is still
// this node's, and is returned after its release.
func TestSingleByALostAnswer(t *testing.T) {
	for _, restarted := range []bool{false, true} {
		a, b, now, _ := hosts(t)
		first, err := a.addCluster(calicoConf(), "first", model.AddressRequest{})
		if err != nil {
			t.Fatal(err)
		}
		addr := netip.MustParsePrefix(first).Addr().Next()
		b.podRequest(t, a, "db", "one", addr)
		p := b.engine.state.pools["four"]
		single := p.blocks[netip.PrefixFrom(addr, 32)]
		b.line.set(false, true)
		if _, err := b.engine.affinity.claimBorrowed(t.Context(), p, addr, claims.OfEntry(single.claim), single.object,
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
			store.AddressClaims().Key("shop", (&model.VMRef{Namespace: "shop", Name: "db"}).ClaimName("net", "net1")),
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
