// SPDX-License-Identifier: Apache-2.0

package nft

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"runtime"
	"strings"
	"testing"

	"github.com/weft-net/weft/internal/kernel/nft/lang"
	"github.com/weft-net/weft/internal/nettest"
	"github.com/weft-net/weft/internal/state"
)

// sameDiff checks that Diff returns the differences from what Read returns.
func sameDiff(t *testing.T, c *Conn, where string, tables ...state.Table) {
	t.Helper()
	have, err := c.Read(bounded(t), tables)
	if err != nil {
		t.Fatal(err)
	}
	got, err := c.Diff(bounded(t), tables)
	if want := lang.Diff(tables, have); err != nil || !reflect.DeepEqual(got, want) {
		t.Fatalf("%s: Diff returns %v, %v\nof what is read differs %v", where, got, err, want)
	}
}

// TestDiffOfMany: elements that are equal cost Diff no texts, which is most of what a comparison with Read allocates.
func TestDiffOfMany(t *testing.T) {
	ns := nettest.NS(t, "n")
	c := dial(t, ns)
	want := state.Table{Family: "inet", Name: "weft-many"}
	for i := range 3 {
		s := state.Set{Name: fmt.Sprintf("s%d", i), Key: "ipv4_addr", Interval: i == 0}
		for n := range 5000 {
			s.Elements = append(s.Elements, state.Element{Key: []string{fmt.Sprintf("10.%d.%d.%d", i, n>>7, n&127<<1)}})
		}
		want.Sets = append(want.Sets, s)
	}
	apply(t, c, want)
	nettest.Run(t, ns, "nft", "delete element inet weft-many s0 { 10.0.0.4 }; add element inet weft-many s2 { 10.9.9.9 }")
	sameDiff(t, c, "a change", want)
	allocated := func(f func() error) uint64 {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		if err := f(); err != nil {
			t.Fatal(err)
		}
		runtime.ReadMemStats(&after)
		return after.TotalAlloc - before.TotalAlloc
	}
	tables := []state.Table{want}
	read := allocated(func() error {
		have, err := c.Read(bounded(t), tables)
		lang.Diff(tables, have)
		return err
	})
	diff := allocated(func() error { _, err := c.Diff(bounded(t), tables); return err })
	if t.Logf("comparing what Read returns allocates %d KiB, Diff %d", read>>10, diff>>10); diff > read*3/4 {
		t.Errorf("Diff allocates %d bytes, comparing what Read returns %d", diff, read)
	}
}

// TestWalk changes from any state to any other; after each step the kernel has exactly the wanted state, and applying
// it again writes nothing.
func TestWalk(t *testing.T) {
	whole := masq("10.1.0.2", "10.1.0.3")
	whole.Shared = false
	reversed := masq("10.1.0.3")
	reversed.Shared = false
	rs := reversed.Chains[0].Rules
	reversed.Chains[0].Rules = []state.NftRule{rs[5], rs[0], rs[2], rs[1]}
	renamed := all("weft", everything())
	retyped := all("weft", everything())
	for i := range retyped.Sets {
		if retyped.Sets[i].Name == "pair" {
			retyped.Sets[i] = state.Set{Name: "pair", Key: "ipv4_addr . ipv4_addr", Elements: elements("10.0.0.1 . 1.1.1.1")}
		}
		if retyped.Sets[i].Name == "judge" {
			retyped.Sets[i].Elements = elements("1.1.1.1 : goto x", "1.1.1.9 : jump y")
		}
	}
	retyped.Chains = append(retyped.Chains, state.Chain{Name: "y", Rules: rules("ip saddr 1.1.1.1 jump x")})
	dropping := all("weft", filter())
	empty := state.Table{Family: "inet", Name: "weft"}
	shifted := all("weft", filter())
	shifted.Chains[1].Policy = "accept"
	shifted.Chains[2].Priority = -290
	canned := []state.Table{whole, reversed, renamed, retyped, dropping, empty, shifted}

	ns := nettest.NS(t, "n")
	c := dial(t, ns)
	seed := uint64(7)
	r := rand.New(rand.NewPCG(seed, seed))
	at := -1
	for step := range 120 {
		to := r.IntN(len(canned))
		want := []state.Table{canned[to]}
		where := fmt.Sprintf("seed %d, step %d, state %d to %d", seed, step, at, to)
		if err := c.Apply(bounded(t), want); err != nil {
			t.Fatalf("%s: %v", where, err)
		}
		have, err := c.ReadAll(bounded(t))
		if err != nil {
			t.Fatal(err)
		}
		if d := lang.Diff(want, have); len(d) > 0 {
			t.Fatalf("%s: Read differs from the plan: %v", where, d)
		}
		for _, shared := range []bool{false, true} {
			other := canned[r.IntN(len(canned))]
			other.Shared = shared
			sameDiff(t, c, where, other)
		}
		before := gen(t, ns)
		apply(t, c, want...)
		if now := gen(t, ns); now != before {
			t.Fatalf("%s: a second Apply wrote something", where)
		}
		at = to
	}
}

func all(name string, t state.Table) state.Table {
	t.Name = name
	return t
}

// TestExternalChanges: Apply repairs any external change, on a connection that knows the table as on a new one.
func TestExternalChanges(t *testing.T) {
	for _, deed := range []string{
		"flush chain inet weft postrouting",
		"add rule inet weft postrouting accept",
		"insert rule inet weft postrouting ip saddr 9.9.9.9 drop",
		"delete chain inet weft postrouting",
		"delete element inet weft masq4 { 10.1.0.2 }",
		"delete table inet weft",
		"flush chain inet weft postrouting; delete set inet weft masq6",
		"flush chain inet weft postrouting; delete set inet weft masq4; add set inet weft masq4 { type inet_service; }",
		"chain inet weft postrouting { policy drop; }",
		"insert rule inet weft postrouting limit rate 5/second accept",
		"flush chain inet weft postrouting; delete chain inet weft postrouting; " +
			"add chain inet weft postrouting { type nat hook postrouting priority 90; }",
	} {
		ns := nettest.NS(t, "n")
		c := dial(t, ns)
		tbl := masq("10.1.0.2")
		apply(t, c, tbl)
		want := list(t, ns, tbl)
		if out, err := nettest.Try(ns, "nft", deed); err != nil {
			// One command at a time if a transaction cannot contain both.
			for part := range strings.SplitSeq(deed, "; ") {
				if _, err := nettest.Try(ns, "nft", part); err != nil && !strings.Contains(deed, ";") {
					t.Fatalf("nft %s: %v: %s", deed, err, out)
				}
			}
		}
		if have, err := c.Read(bounded(t), []state.Table{tbl}); err != nil || len(lang.Diff([]state.Table{tbl}, have)) == 0 {
			t.Errorf("%s: Diff sees nothing (%v)", deed, err)
		}
		apply(t, c, tbl)
		if got := list(t, ns, tbl); sorted(got) != sorted(want) {
			t.Errorf("%s: not repaired:\n%s", deed, got)
		}
	}
}

// sorted normalizes listings for comparison: the order of sets and chains depends on when they were created.
func sorted(listing string) string {
	blocks := strings.Split(listing, "\n\t}\n")
	for i := range blocks {
		blocks[i] = strings.TrimSpace(strings.TrimPrefix(strings.TrimSpace(blocks[i]), "table inet weft {"))
	}
	out := []string{}
	for len(blocks) > 0 {
		least := 0
		for i := range blocks {
			if blocks[i] < blocks[least] {
				least = i
			}
		}
		out = append(out, blocks[least])
		blocks = append(blocks[:least], blocks[least+1:]...)
	}
	return strings.Join(out, "\n")
}

// TestForeign: foreign tables, and foreign elements of a shared table, survive Apply, Remove and RemoveShared.
func TestForeign(t *testing.T) {
	ns := nettest.NS(t, "n")
	const theirs = "table ip nat { set s { type ipv4_addr; elements = { 1.1.1.1 }; }; chain c { type nat hook postrouting priority 100; ip saddr @s masquerade; }; }"
	nettest.Run(t, ns, "nft", theirs)
	nettest.Run(t, ns, "nft",
		"add table inet other { chain input { type filter hook input priority 0; counter accept; }; }")
	foreign := nettest.Run(t, ns, "nft", "-a", "list", "ruleset")
	c := dial(t, ns)
	mine, other := masq("10.1.0.2"), masq("10.1.0.7")
	apply(t, c, mine)
	apply(t, c, other)
	apply(t, c, everything())
	ctx := bounded(t)
	if err := c.Remove(ctx, []state.Table{mine, everything()}); err != nil {
		t.Fatal(err)
	}
	have, err := c.ReadAll(ctx)
	if err != nil {
		t.Fatal(err)
	}
	other.Shared = false
	if d := lang.Diff([]state.Table{other}, have); len(d) > 0 {
		t.Errorf("Remove of one owner's elements touched another's: %v", d)
	}
	if err := c.RemoveShared(ctx, []state.Table{masq()}); err != nil {
		t.Fatal(err)
	}
	if have, _ := c.ReadAll(ctx); len(have) != 1 {
		t.Errorf("RemoveShared took a table that is in use")
	}
	for range 2 { // the second time everything is missing, which is no error
		if err := c.Remove(ctx, []state.Table{masq("10.1.0.7"), everything()}); err != nil {
			t.Fatal(err)
		}
		if err := c.RemoveShared(ctx, []state.Table{masq()}); err != nil {
			t.Fatal(err)
		}
	}
	if now := nettest.Run(t, ns, "nft", "-a", "list", "ruleset"); now != foreign {
		t.Errorf("the foreign ruleset changed:\n%s\nbefore:\n%s", now, foreign)
	}
}

// TestRemoveSome: missing elements do not prevent the removal of the others.
func TestRemoveSome(t *testing.T) {
	ns := nettest.NS(t, "n")
	c := dial(t, ns)
	both := masq("10.1.0.2", "10.1.0.3", "10.1.0.4")
	apply(t, c, both)
	nettest.Run(t, ns, "nft", "delete element inet weft masq4 { 10.1.0.3 }")
	if err := c.Remove(bounded(t), []state.Table{both}); err != nil {
		t.Fatal(err)
	}
	empty := masq()
	empty.Shared = false
	have, err := c.ReadAll(bounded(t))
	if err != nil {
		t.Fatal(err)
	}
	if d := lang.Diff([]state.Table{empty}, have); len(d) > 0 {
		t.Errorf("left behind: %v", d)
	}
}

// TestValueChanges: an existing element with another value is replaced, also in a shared table.
func TestValueChanges(t *testing.T) {
	ns := nettest.NS(t, "n")
	c := dial(t, ns)
	with := func(val string) []state.Table {
		return []state.Table{{Family: "inet", Name: "weft", Shared: true, Sets: []state.Set{
			{
				Name: "m", Key: "ipv4_addr . inet_service", Data: "ipv4_addr . inet_service",
				Elements: elements("10.0.0.1 . 80 : " + val),
			},
		}}}
	}
	for _, val := range []string{"10.1.0.2 . 8080", "10.1.0.3 . 8080", "10.1.0.3 . 8081"} {
		apply(t, c, with(val)...)
		if got := list(t, ns, with(val)[0]); !strings.Contains(got, val) {
			t.Errorf("want %s in\n%s", val, got)
		}
	}
}

// TestRefused: a refusal is returned, with the message that was refused, and nothing else was changed.
func TestRefused(t *testing.T) {
	ns := nettest.NS(t, "n")
	c := dial(t, ns)
	tbl := state.Table{Family: "inet", Name: "weft", Shared: true, Sets: []state.Set{
		{Name: "v", Key: "ipv4_addr", Data: "verdict"}, {Name: "nets", Key: "ipv4_addr", Interval: true},
	}}
	apply(t, c, tbl)
	before := gen(t, ns)
	tbl.Sets[0].Elements = elements("1.1.1.1 : accept", "1.1.1.2 : jump nowhere")
	err := c.Apply(bounded(t), []state.Table{tbl})
	if err == nil || !strings.Contains(err.Error(), "make elements of v: no such file or directory") {
		t.Errorf("a jump to a chain that is not there: %v", err)
	}
	tbl.Sets[0].Elements = nil
	tbl.Sets[1].Elements = elements("10.0.0.0/8", "10.1.0.0/16")
	if err = c.Apply(bounded(t), []state.Table{tbl}); err == nil ||
		!strings.Contains(err.Error(), "make elements of nets") {
		t.Errorf("overlapping ranges: %v", err)
	}
	if now := gen(t, ns); now != before {
		t.Errorf("the ruleset changed from generation %d to %d", before, now)
	}
}
