// SPDX-License-Identifier: Apache-2.0

package mesh

import (
	"net/netip"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/weft-net/weft/internal/model"
)

// TestTaken: a prefix is refused if it overlaps one that is there, and only then.
func TestTaken(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var is taken
		var want []netip.Prefix
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			if len(want) > 0 && rapid.IntRange(0, 3).Draw(t, "drop") == 0 {
				i := rapid.IntRange(0, len(want)-1).Draw(t, "which")
				is.drop(want[i : i+1])
				want = slices.Delete(want, i, i+1)
				continue
			}
			p := netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 0, 0, byte(rapid.IntRange(0, 255).Draw(t, "addr"))}),
				rapid.SampledFrom([]int{25, 27, 29, 30, 32, 32}).Draw(t, "bits")).Masked()
			free := !slices.ContainsFunc(want, p.Overlaps)
			if got := is.add([]netip.Prefix{p}); got != free {
				t.Fatalf("%s among %v: added %v, want %v", p, want, got, free)
			}
			if free {
				want = append(want, p)
			}
		}
		slices.SortFunc(want, comparePrefix)
		if !slices.Equal(is.prefixes, want) {
			t.Fatalf("%v, want %v", is.prefixes, want)
		}
	})
}

// TestTakenAfterWholePass: what nodes have is kept over a whole pass without a change only. A node that contradicts one
// of a whole pass in between is no change of that node alone.
func TestTakenAfterWholePass(t *testing.T) {
	e := eventCases()[0]
	nodes := func(names ...int) *model.Cluster {
		c := *e.after
		c.Nodes = nil
		for _, i := range names {
			c.Nodes = append(c.Nodes, e.after.Nodes[i])
		}
		return &c
	}
	var v Previous
	whole := func(c *model.Cluster) {
		if _, err := v.Plan(c, e.cfg, e.answers); err != nil {
			t.Fatal(err)
		}
	}
	advances := func(c *model.Cluster) bool { _, _, ok := v.Advance(c, e.cfg, e.answers); return ok }
	whole(nodes(0, 1, 2))
	c := nodes(0, 1, 2, 3)
	if !advances(c) {
		t.Fatal("a node joins")
	}
	had := v.taken
	if whole(c); v.taken != had {
		t.Error("a whole pass without a change forgets what nodes have")
	}
	whole(nodes(0, 1, 2, 3, 4))
	twice := nodes(0, 1, 2, 3, 4, 5)
	twice.Nodes[5].PodCIDRs = twice.Nodes[4].PodCIDRs
	if advances(twice) {
		t.Error("a node joins with the prefix of one that joined in a whole pass")
	}
}
