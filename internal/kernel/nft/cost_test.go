// SPDX-License-Identifier: Apache-2.0

package nft

import (
	"context"
	"fmt"
	"testing"

	"github.com/weft-net/weft/internal/kernel/nft/lang"
	"github.com/weft-net/weft/internal/nettest"
	"github.com/weft-net/weft/internal/state"
)

// TestAddIsUnread: adding a pod to unchanged tables reads nothing, also when two kinds of fragments alternate; after a
// foreign change it reads once.
func TestAddIsUnread(t *testing.T) {
	ns := nettest.NS(t, "n")
	c := dial(t, ns)
	other := state.Table{Family: "inet", Name: "weft", Shared: true, Sets: []state.Set{
		{Name: "ports", Key: "ipv4_addr . inet_service", Data: "ipv4_addr . inet_service"},
	}}
	apply(t, c, masq("10.1.0.2"))
	apply(t, c, other)
	for i := range 5 {
		pod := masq(fmt.Sprintf("10.1.1.%d", i))
		other.Sets[0].Elements = elements(fmt.Sprintf("10.0.0.1 . %d : 10.1.0.2 . 80", 8000+i))
		for _, tbl := range []state.Table{pod, other} {
			if done, err := c.addOnly([]state.Table{tbl}); !done || err != nil {
				t.Fatalf("pod %d: not added by one transaction (%v)", i, err)
			}
		}
		if err := c.Remove(bounded(t), []state.Table{pod}); err != nil {
			t.Fatal(err)
		}
	}
	nettest.Run(t, ns, "nft", "add table ip stranger")
	if done, _ := c.addOnly([]state.Table{masq("10.1.0.9")}); done {
		t.Error("added unread though a stranger changed the ruleset")
	}
	apply(t, c, masq("10.1.0.9"))
	if done, err := c.addOnly([]state.Table{masq("10.1.0.10")}); !done {
		t.Errorf("still reading after it was looked at again: %v", err)
	}
}

// TestReadIsShort: of unchanged tables only the elements are read, and a missing one is reported; after a foreign
// change everything is read.
func TestReadIsShort(t *testing.T) {
	ns := nettest.NS(t, "n")
	c := dial(t, ns)
	apply(t, c, masq("10.1.0.2"))
	apply(t, c, masq("10.1.0.3"))
	want := []state.Table{masq("10.1.0.2", "10.1.0.3")}
	have, done, err := c.readUnchanged(want)
	if err != nil || !done {
		t.Fatalf("done %v: %v", done, err)
	}
	if d := lang.Diff(want, have); len(d) > 0 {
		t.Errorf("differs: %v", d)
	}
	if err := c.Remove(bounded(t), []state.Table{masq("10.1.0.3")}); err != nil {
		t.Fatal(err)
	}
	have, done, err = c.readUnchanged(want)
	if err != nil || !done {
		t.Fatalf("after Remove: done %v: %v", done, err)
	}
	if d := lang.Diff(want, have); len(d) != 2 {
		t.Errorf("%d differences, want the two elements alone: %v", len(d), d)
	}
	want = []state.Table{masq("10.1.0.2")}
	nettest.Run(t, ns, "nft", "flush table "+want[0].Family+" "+want[0].Name)
	if _, done, _ := c.readUnchanged(want); done {
		t.Error("not read though a stranger changed the ruleset")
	}
	have, err = c.Read(bounded(t), want)
	if err != nil {
		t.Fatal(err)
	}
	if d := lang.Diff(want, have); len(d) == 0 {
		t.Error("flushed rules are not missed")
	}
}

func BenchmarkAdd(b *testing.B) {
	ns := nettest.NS(b, "n")
	c, err := Dial(ns)
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	ctx := context.Background()
	for i := 0; b.Loop(); i++ {
		tbl := []state.Table{masq(fmt.Sprintf("10.%d.%d.%d", i>>14&127, i>>7&127, i&127))}
		if err := c.Apply(ctx, tbl); err != nil {
			b.Fatal(err)
		}
		if err := c.Remove(ctx, tbl); err != nil {
			b.Fatal(err)
		}
	}
}

// TestManyAtOnce: many processes (here independent connections) add and remove pods at once; the table is created once
// and finally deleted.
func TestManyAtOnce(t *testing.T) {
	ns := nettest.NS(t, "n")
	ctx := bounded(t)
	errs := make(chan error, 64)
	for i := range cap(errs) {
		go func() {
			errs <- func() error {
				c, err := Dial(ns)
				if err != nil {
					return err
				}
				defer func() { _ = c.Close() }()
				tbl := []state.Table{masq(fmt.Sprintf("10.1.0.%d", i))}
				for range 5 {
					if err := c.Apply(ctx, tbl); err != nil {
						return err
					}
					have, err := c.Read(ctx, tbl)
					if err != nil {
						return err
					}
					if d := lang.Diff(tbl, have); len(d) > 0 {
						return fmt.Errorf("pod %d: %v", i, d)
					}
					if err := c.Remove(ctx, tbl); err != nil {
						return err
					}
					if err := c.RemoveShared(ctx, tbl); err != nil {
						return err
					}
				}
				return nil
			}()
		}()
	}
	for range cap(errs) {
		if err := <-errs; err != nil {
			t.Error(err)
		}
	}
	if out := nettest.Run(t, ns, "nft", "list", "ruleset"); out != "" {
		t.Errorf("left behind:\n%s", out)
	}
}
