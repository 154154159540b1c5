// SPDX-License-Identifier: Apache-2.0

package blocks

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/weft-net/weft/internal/cluster/store"
)

// TestBlocksOfAGoneNode: they are taken over when the Node object has been missing for long, and not while it is there,
// however silent the node is.
func TestBlocksOfAGoneNode(t *testing.T) {
	nodes := "apiVersion: v1\nkind: Node\nmetadata: {name: a}\n---\napiVersion: v1\nkind: Node\nmetadata: {name: b}\n"
	s, path := cluster(t, map[string]string{"nodes.yaml": nodes, "pool.yaml": poolOf30})
	now := time.Unix(1e9, 0)
	calm := func(c *Config) {
		c.Now = func() time.Time { return now }
		c.After = func(time.Duration) <-chan time.Time { ch := make(chan time.Time, 1); ch <- now; return ch }
	}
	a, b := join(t, path, "a", calm), join(t, path, "b", calm)
	conf := rangeConf1("10.0.0.0/27")
	all := func(n *node, prefix string) int {
		for i := range 40 {
			if _, err := n.add(conf, prefix+strings.Repeat("x", i)); err != nil {
				return i
			}
		}
		return 40
	}
	a.mustAdd(conf, "a")
	if n := all(b, "silent"); n != 23 {
		t.Fatalf("%d addresses beside node a's block, want 23", n)
	}
	now = now.Add(time.Hour)
	if n := all(b, "still silent"); n != 0 {
		t.Errorf("%d addresses of a node that is only silent", n)
	}
	if err := s.Objects().Delete(context.Background(), store.Nodes(), store.NodeKey("a"), ""); err != nil {
		t.Fatal(err)
	}
	if n := all(b, "just gone"); n != 0 {
		t.Errorf("%d addresses of a node whose object is missing for no time", n)
	}
	now = now.Add(9 * time.Minute)
	if n := all(b, "not long gone"); n != 0 {
		t.Errorf("%d addresses of a node whose object is missing for nine minutes", n)
	}
	now = now.Add(time.Minute)
	if n := all(b, "gone"); n != 7 {
		t.Errorf("%d addresses of a node that is gone, want 7", n)
	}
	// It was not gone after all: it sees that the block is not its own, and allocates nothing from it.
	if err := a.engine.reconciler.reconcile(context.Background()); err != nil {
		t.Fatal(err)
	}
	if n := all(a, "back"); n != 0 {
		t.Errorf("%d addresses of a block that was taken over", n)
	}
}

// TestNodesWithoutObjects: where this node has no object either, missing objects say nothing.
func TestNodesWithoutObjects(t *testing.T) {
	_, path := cluster(t, map[string]string{"pool.yaml": poolOf30})
	now := time.Unix(1e9, 0)
	calm := func(c *Config) {
		c.Now = func() time.Time { return now }
		c.After = func(time.Duration) <-chan time.Time { ch := make(chan time.Time, 1); ch <- now; return ch }
	}
	a, b := join(t, path, "a", calm), join(t, path, "b", calm)
	conf := rangeConf1("10.0.0.0/27")
	a.mustAdd(conf, "a")
	for i := range 60 {
		_, _ = b.add(conf, strings.Repeat("x", i+1))
		now = now.Add(time.Minute)
	}
	if n := len(b.ledger); n != 23 {
		t.Errorf("%d addresses, want the 23 that are not node a's", n)
	}
}

// denier is a server that starts: it does not know weft's kinds yet.
type denier struct {
	store.Objects
	denies bool
}

func (d *denier) Get(ctx context.Context, kind store.Kind, key store.Key) (store.Object, error) {
	if d.denies {
		return store.Object{}, store.ErrNotFound
	}
	return d.Objects.Get(ctx, kind, key)
}

// TestServerThatStarts: what it denies is not allocated any more, and is back when it is found again.
func TestServerThatStarts(t *testing.T) {
	s, path := cluster(t, map[string]string{"pool.yaml": poolOf30})
	server := &denier{Objects: s.Objects()}
	a := join(t, path, "a", func(c *Config) {
		c.Objects = server
		c.After = func(time.Duration) <-chan time.Time { ch := make(chan time.Time, 1); ch <- time.Now(); return ch }
	})
	conf := rangeConf1("10.0.0.0/27")
	a.mustAdd(conf, "1")
	reconcile := func() {
		for _, p := range a.engine.state.pools {
			for _, b := range p.order {
				b.stale = true
			}
		}
		if err := a.engine.reconciler.reconcile(context.Background()); err != nil {
			t.Fatal(err)
		}
	}
	reconcile()
	server.denies = true
	reconcile()
	if _, err := a.add(conf, "2", [2]string{"IP", "10.0.0.5"}); err == nil {
		t.Error("an address of a block that is denied was given")
	}
	server.denies = false
	reconcile()
	if _, err := a.add(conf, "2", [2]string{"IP", "10.0.0.5"}); err != nil {
		t.Errorf("the block is not back: %v", err)
	}
}
