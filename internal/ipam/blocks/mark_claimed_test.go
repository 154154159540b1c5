// SPDX-License-Identifier: Apache-2.0

package blocks

import (
	"context"
	"fmt"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weft-net/weft/internal/cluster/store"
	"github.com/weft-net/weft/internal/ipam/claims"
	"github.com/weft-net/weft/internal/model"
)

// lister counts lists, and the bytes of what they return.
type lister struct {
	store.Objects
	mu    sync.Mutex
	lists map[string]int
	bytes map[string]int
}

func (l *lister) List(ctx context.Context, kind store.Kind) ([]store.Object, error) {
	all, err := l.Objects.List(ctx, kind)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lists[kind.Resource]++
	for _, o := range all {
		l.bytes[kind.Resource] += len(o.Raw)
	}
	return all, err
}

func (l *lister) count(kind store.Kind) (lists, bytes int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.lists[kind.Resource], l.bytes[kind.Resource]
}

// listing joins a node whose lists are counted, and whose clock is moved by later.
func listing(t *testing.T, path string) (n *node, l *lister, later func(time.Duration)) {
	var offset atomic.Int64
	n = join(t, path, "a", func(c *Config) {
		l = &lister{Objects: c.Objects, lists: map[string]int{}, bytes: map[string]int{}}
		c.Objects, c.Now = l, func() time.Time { return time.Now().Add(time.Duration(offset.Load())) }
	})
	return n, l, func(d time.Duration) { offset.Add(int64(d)) }
}

func claimYAML(name, addr string) string {
	return fmt.Sprintf("apiVersion: weft.dev/v1alpha1\nkind: AddressClaim\nmetadata: {name: %s, namespace: shop}\n"+
		"spec: {}\nstatus: {addresses: [%s], node: gone}\n---\n", name, addr)
}

// TestNewBlocksDoNotListClaims: with a claim in each block of a pool, 4,096 of them, a node lists the claims for its
// first blocks, until its watch has begun, one time during the watch, and not for later blocks. It allocates none of
// their addresses.
func TestNewBlocksDoNotListClaims(t *testing.T) {
	var all strings.Builder
	claimed := map[netip.Addr]bool{}
	for i := range 4096 {
		a := netip.AddrFrom4([4]byte{10, 1, byte(i / 16), byte(i%16*16 + 5)})
		claimed[a] = true
		all.WriteString(claimYAML(fmt.Sprint("c", i), a.String()))
	}
	_, path := cluster(t, map[string]string{"pool.yaml": poolYAML("p", "10.1.0.0/16", 28), "claims.yaml": all.String()})
	n, l, _ := listing(t, path)
	n.run()
	add := func(from, to int) {
		for i := from; i < to; i++ {
			got, err := n.addCluster(calicoConf(), fmt.Sprint("pod", i), model.AddressRequest{})
			if err != nil {
				t.Fatal(err)
			}
			if a := netip.MustParsePrefix(got).Addr(); claimed[a] {
				t.Fatalf("pod %d got the claimed address %s", i, a)
			}
		}
	}
	add(0, 1)
	eventually(t, "the blocks are watched", n.engine.state.isWatching)
	add(1, 35)
	eventually(t, "a list during the watch", func() bool {
		_, ok := n.engine.affinity.claimed.Find(netip.MustParsePrefix("10.1.0.0/16"))
		return ok
	})
	before, bytes := l.count(store.AddressClaims())
	add(35, 275)
	lists, more := l.count(store.AddressClaims())
	blocks := n.engine.Count().Blocks
	t.Logf("%d blocks; claims listed %d times, %d bytes each", blocks, lists, bytes/before)
	if blocks < 18 || before > 4 || lists != before || more != bytes {
		t.Errorf("%d blocks: claims were listed %d times, %d of them for further blocks (%d bytes)", blocks, lists,
			lists-before, more-bytes)
	}
	if ipam, _ := l.count(store.IPAMClaims()); ipam != lists {
		t.Errorf("IPAMClaims were listed %d times", ipam)
	}
}

// TestClaimsOfVanishedBlocks: the claims are listed again for a block that another node had since the last list, and
// whose object was deleted under a claim that is newer than the list; not for blocks that this node itself released.
func TestClaimsOfVanishedBlocks(t *testing.T) {
	s, path := cluster(t, map[string]string{
		"pool.yaml": poolYAML("p", "10.1.0.0/27", 29), "claims.yaml": claimYAML("old", "192.0.2.1"),
	})
	n, l, later := listing(t, path)
	stop := n.run()
	add := func(id string) string {
		t.Helper()
		got, err := n.addCluster(calicoConf(), id, model.AddressRequest{})
		if err != nil {
			t.Fatal(err)
		}
		return got
	}
	add("first")
	eventually(t, "the blocks are watched", n.engine.state.isWatching)
	for i := range 9 { // a second block, listed during the watch
		add(fmt.Sprint("more", i))
	}
	eventually(t, "a list during the watch", func() bool {
		_, ok := n.engine.affinity.claimed.Find(netip.MustParsePrefix("10.1.0.0/27"))
		return ok
	})

	// Another node has the last block that is free.
	var free netip.Prefix
	for i := range 4 {
		cidr := netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 1, 0, byte(8 * i)}), 29)
		if _, err := s.Objects().Get(t.Context(), store.AddressBlocks(),
			store.AddressBlocks().Key("", store.BlockName("p", cidr))); err != nil {
			free = cidr
		}
	}
	if !free.IsValid() {
		t.Fatal("no block is free")
	}
	o, err := store.AddressBlockObject(store.Object{}, model.AddressBlock{Pool: "p", CIDR: free, Node: "gone", Claim: "x"})
	if err == nil {
		o, err = s.Objects().Create(t.Context(), store.AddressBlocks(), o)
	}
	if err != nil {
		t.Fatal(err)
	}
	known := func() bool {
		n.engine.state.mu.Lock()
		defer n.engine.state.mu.Unlock()
		_, is := n.engine.state.pools["p"].remote[free]
		return is
	}
	eventually(t, "the block is known", known)
	// It uses the claim, and is deleted together with its block's object, as `weft ipam check --repair` does.
	claimed := free.Addr().Next()
	c, err := store.NewAddressClaim(model.AddressClaim{Namespace: "shop", Name: "new"})
	if err == nil {
		c, err = c.Edited(store.WithClaimStatus([]string{claimed.String()}, "gone"))
	}
	if err == nil {
		_, err = s.Objects().Create(t.Context(), store.AddressClaims(), c)
	}
	if err == nil {
		err = s.Objects().Delete(t.Context(), store.AddressBlocks(), o.Key, o.Version)
	}
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "the block is gone", func() bool { return !known() })
	later(2 * restoreGrace)
	before, _ := l.count(store.AddressClaims())
	for i := 0; ; i++ {
		got, err := n.addCluster(calicoConf(), fmt.Sprint("rest", i), model.AddressRequest{})
		if err != nil {
			break // all are allocated
		}
		if netip.MustParsePrefix(got).Addr() == claimed {
			t.Fatalf("a pod got the address %s of a claim", claimed)
		}
	}
	stop()
	if after, _ := l.count(store.AddressClaims()); after == before {
		t.Error("the claims were not listed again")
	}
	held := n.engine.Allocations().Held
	found := false
	for _, h := range held {
		found = found || h.Addr == claimed && h.Claim == claims.AddressClaimPrefix+"shop/new"
	}
	if !found {
		t.Errorf("the claim's address is not held for it: %+v", held)
	}
}
