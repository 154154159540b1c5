// SPDX-License-Identifier: Apache-2.0

package nft

import (
	"fmt"
	"strings"
	"testing"

	"github.com/weft-net/weft/internal/nettest"
	"github.com/weft-net/weft/internal/state"
)

// links is a shared table whose elements pass from owner to owner.
func links(owner string, names ...string) state.Table {
	t := state.Table{Family: "inet", Name: "weft_links", Shared: true, Sets: []state.Set{
		{Name: "links", Key: "ifname", Owned: true},
		{Name: "class", Key: "ifname", Data: "mark", Owned: true},
	}}
	for _, name := range names {
		t.Sets[0].Elements = append(t.Sets[0].Elements, state.Element{Key: []string{name}, Comment: "owner " + owner})
		t.Sets[1].Elements = append(t.Sets[1].Elements, state.Element{
			Key: []string{name}, Val: []string{"0x" + owner}, Comment: "owner " + owner,
		})
	}
	return t
}

// TestOwned: elements belong to the owner that applied them last, whether its connection has read anything or not, and
// a late removal by the former owner leaves them.
func TestOwned(t *testing.T) {
	for _, fresh := range []bool{false, true} {
		t.Run(fmt.Sprintf("fresh %t", fresh), func(t *testing.T) {
			ns := nettest.NS(t, "n")
			one := dial(t, ns)
			two := one
			apply(t, one, links("1", "a", "b"))
			if fresh {
				two = dial(t, ns)
			}
			apply(t, two, links("2", "a"))
			for range 2 {
				if err := one.Remove(bounded(t), []state.Table{links("1", "a", "b")}); err != nil {
					t.Fatal(err)
				}
				out := nettest.Run(t, ns, "nft", "list", "table", "inet", "weft_links")
				if strings.Contains(out, "owner 1") || strings.Count(out, `"owner 2"`) != 2 ||
					!strings.Contains(out, "0x00000002") {
					t.Errorf("after the first one has gone:\n%s", out)
				}
			}
			before, err := two.wire.generation()
			if err != nil {
				t.Fatal(err)
			}
			apply(t, two, links("2", "a"))
			if after, err := two.wire.generation(); err != nil || after != before {
				t.Errorf("the same again is a change: generation %d, then %d, %v", before, after, err)
			}
			if err := two.Remove(bounded(t), []state.Table{links("2", "a")}); err != nil {
				t.Fatal(err)
			}
			if out := nettest.Run(t, ns, "nft", "list", "table", "inet", "weft_links"); strings.Contains(out, "owner") {
				t.Errorf("after the second one has gone:\n%s", out)
			}
		})
	}
}

// TestOwnedUnread: an element of another owner is replaced, although the set was not read and the kernel would accept
// the same key without a change.
func TestOwnedUnread(t *testing.T) {
	ns := nettest.NS(t, "n")
	c := dial(t, ns)
	only := func(owner string) state.Table {
		t := links(owner, "a")
		t.Sets = t.Sets[:1]
		return t
	}
	for _, owner := range []string{"1", "2"} {
		apply(t, c, only(owner))
	}
	if err := c.Remove(bounded(t), []state.Table{only("1")}); err != nil {
		t.Fatal(err)
	}
	if out := nettest.Run(t, ns, "nft", "list", "table", "inet", "weft_links"); !strings.Contains(out, `"owner 2"`) {
		t.Errorf("after the first one has gone:\n%s", out)
	}
}
