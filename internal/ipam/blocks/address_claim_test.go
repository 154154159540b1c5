// SPDX-License-Identifier: Apache-2.0

package blocks

import (
	"context"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/weft-net/weft/internal/cluster/store"
	"github.com/weft-net/weft/internal/ipam/claims"
	"github.com/weft-net/weft/internal/model"
)

const claimsPath = `apiVersion: weft.dev/v1alpha1
kind: AddressClaim
metadata: {name: db, namespace: shop}
spec: {}
---
apiVersion: weft.dev/v1alpha1
kind: AddressClaim
metadata: {name: certain, namespace: shop}
spec: {addresses: [10.1.0.9, "fd01::9"]}
---
apiVersion: weft.dev/v1alpha1
kind: AddressClaim
metadata: {name: pooled, namespace: shop}
spec: {pools: [second]}
---
apiVersion: weft.dev/v1alpha1
kind: AddressClaim
metadata: {name: wrong, namespace: shop}
spec: {pools: [none]}
---
apiVersion: weft.dev/v1alpha1
kind: AddressClaim
metadata: {name: words, namespace: shop}
spec: {addresses: [printer]}
---
apiVersion: weft.dev/v1alpha1
kind: AddressClaim
metadata: {name: outside, namespace: shop}
spec: {addresses: [192.0.2.1]}
`

// TestAddressClaim: addresses of the cluster's network stay with a claim over pods, restarts, nodes and a store that
// does not answer, one pod at a time; and are free when the claim is gone.
func TestAddressClaim(t *testing.T) {
	s, path := cluster(t, map[string]string{
		"first.yaml": poolYAML("first", "10.1.0.0/24", 28), "six.yaml": poolYAML("six", "fd01::/112", 124),
		"second.yaml": poolYAML("second", "10.2.0.0/24", 28, "Manual"),
		"claims.yaml": claimsPath,
	})
	now := time.Unix(1e9, 0)
	calm := func(c *Config) {
		c.Now = func() time.Time { return now }
		c.After = func(time.Duration) <-chan time.Time { ch := make(chan time.Time, 1); ch <- now; return ch }
	}
	a, b := join(t, path, "a", calm), join(t, path, "b", calm)
	add := func(n *node, id, claim string, more ...string) string {
		t.Helper()
		got, err := n.addCluster(calicoConf(more...), id, model.AddressRequest{Claim: "shop/" + claim})
		if err != nil {
			return err.Error()
		}
		return got
	}
	is := func(got, want string) {
		t.Helper()
		if !strings.Contains(got, want) {
			t.Errorf("%s\nwant %s", got, want)
		}
	}
	first := add(a, "first", "db")
	if !strings.HasPrefix(first, "10.1.") {
		t.Fatal(first)
	}
	kind, key := claims.ObjectKey(claims.AddressClaimPrefix + "shop/db")
	is(object(t, s.Objects(), kind, key), `"status":{"addresses":["`+strings.TrimSuffix(first, "/32")+`"],"node":"a"}`)
	is(add(a, "second", "db"), "is taken by interface net1 of container first")
	a.del("first")
	now = now.Add(time.Hour)
	for i := range 20 {
		if got, err := a.addCluster(calicoConf(), "other"+strings.Repeat("x", i), model.AddressRequest{}); err != nil ||
			got == first {
			t.Fatalf("%s, error %v: somebody else has the claim's address", got, err)
		}
	}
	is(add(a, "third", "db"), first)
	a.del("third")
	a.start() // killed
	if err := os.Rename(path, path+".away"); err != nil {
		t.Fatal(err)
	}
	is(add(a, "silent", "db"), first)
	is(add(a, "unknown", "certain"), "AddressClaim shop/certain")
	if err := os.Rename(path+".away", path); err != nil {
		t.Fatal(err)
	}
	a.del("silent")

	is(add(a, "dual", "certain", `"assign_ipv6":"true"`), "10.1.0.9/32 fd01::9/128")
	is(add(a, "pool", "pooled"), "10.2.0.")
	is(add(a, "x", "wrong"),
		`AddressClaim shop/wrong: spec.pools: there is no pool "none" (name a pool of the cluster's network)`)
	is(add(a, "x", "words"),
		`AddressClaim shop/words: spec.addresses[0] "printer" is no address (an address, for example 10.1.0.5)`)
	is(add(a, "x", "outside"), "address 192.0.2.1 is in no pool of the cluster's network")
	is(add(a, "x", "missing"), "AddressClaim shop/missing does not exist (create it, or remove the annotation)")

	// The pod comes back on the other node: the first lends the address.
	is(add(b, "moved", "db"), `is with node "a", which does not answer`)
	reconcileAll(t, a)
	is(add(b, "moved", "db"), first)
	b.del("moved")

	// Without its claim it is free: the second look is believed.
	o, err := s.Objects().Get(t.Context(), store.AddressClaims(), key)
	if err == nil {
		err = s.Objects().Delete(t.Context(), store.AddressClaims(), key, o.Version)
	}
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		now = now.Add(claimPoll)
		reconcileAll(t, b)
	}
	for _, h := range b.engine.Allocations().Held {
		if h.Claim != "" {
			t.Errorf("held for a claim that is gone: %+v", h)
		}
	}
}

// reconcileAll has an engine do what is to be done.
func reconcileAll(t *testing.T, n *node) {
	t.Helper()
	n.engine.state.synced = false
	for _, p := range n.engine.state.pools {
		p.noFreeBlock = false
	}
	if err := n.engine.reconciler.reconcile(context.Background()); err != nil {
		t.Fatal(err)
	}
}
