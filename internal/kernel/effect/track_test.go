// SPDX-License-Identifier: Apache-2.0

package effect

import (
	"net/netip"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/weft-net/weft/internal/netns"
	"github.com/weft-net/weft/internal/nettest"
	"github.com/weft-net/weft/internal/state"
)

// Entries of one namespace are inserted into another: both families, both protocols, with and without translation.
// Repeating it changes only the timeouts.
func TestInsertIntoAnother(t *testing.T) {
	from, to := tracked(t), nettest.NS(t, "to")
	var k, other Conntrack
	defer func() { _, _ = k.Close(), other.Close() }()
	list := func(k *Conntrack, ns *netns.NS) []state.ConntrackEntry {
		t.Helper()
		all, err := k.List(ns, func(state.Connection) bool { return true })
		if err != nil {
			t.Fatal(err)
		}
		slices.SortFunc(all, func(a, b state.ConntrackEntry) int {
			return strings.Compare(a.Src.String()+a.Dst.String()+string(rune(a.Proto)),
				b.Src.String()+b.Dst.String()+string(rune(b.Proto)))
		})
		return all
	}
	want := list(&k, from)
	if len(want) != 7 {
		t.Fatalf("listed: %+v", want)
	}
	translated := slices.IndexFunc(want, func(c state.ConntrackEntry) bool { return c.TCP != nil && c.ReplySrc != c.Dst })
	if c := want[max(translated, 0)]; translated < 0 || c.ReplySrc.String() != "10.1.0.5:5353" || c.TCP.State != 3 ||
		!c.HasAddr(c.ReplySrc.Addr()) {
		t.Errorf("translated: %d %+v", translated, c)
	}
	for i := range want { // a kernel that tracks a connection itself knows its window, so the flag is not compared
		want[i].Timeout = 77
	}
	for _, longer := range []bool{false, true} {
		if err := other.Insert(to, want, longer); err != nil {
			t.Fatal(err)
		}
		got := list(&other, to)
		for i := range got {
			if d := got[i].Timeout; d > 77 || d < 60 {
				t.Errorf("%s: %d s", got[i].Src, d)
			}
			got[i].Timeout = 77
		}
		if d := cmp.Diff(want, got, cmp.Comparer(func(a, b netip.AddrPort) bool { return a == b })); d != "" {
			t.Errorf("tracked (longer %t): -want +got\n%s", longer, d)
		}
		for i := range want {
			if !want[i].Same(got[i]) {
				t.Errorf("%+v is not the same", want[i])
			}
		}
	}
	if _, err := exec.LookPath("conntrack"); err == nil {
		if out := nettest.Run(t, to, "conntrack", "-L", "-p", "tcp", "--dport", "53"); !strings.Contains(out,
			"src=10.1.0.5") {
			t.Errorf("the kernel says:\n%s", out)
		}
	}
}

// A longer timeout is adopted; a shorter one is not.
func TestTrackLonger(t *testing.T) {
	ns := tracked(t)
	var k Conntrack
	defer func() { _ = k.Close() }()
	all, err := k.List(ns, func(c state.Connection) bool { return c.Dst.Port() == 443 })
	if err != nil || len(all) != 1 {
		t.Fatalf("%+v %v", all, err)
	}
	for _, longer := range []bool{false, true} {
		all[0].Timeout = 9000
		if err := k.Insert(ns, all, longer); err != nil {
			t.Fatal(err)
		}
		now, err := k.List(ns, func(c state.Connection) bool { return c.Dst.Port() == 443 })
		if err != nil || len(now) != 1 || longer != (now[0].Timeout > 8000) {
			t.Errorf("longer %t: %+v %v", longer, now, err)
		}
	}
	all[0].Timeout = 20 // as received for a VM that has not arrived yet
	if err := k.Insert(ns, all, true); err != nil {
		t.Fatal(err)
	}
	now, err := k.List(ns, func(c state.Connection) bool { return c.Dst.Port() == 443 })
	if err != nil || len(now) != 1 || now[0].Timeout < 8000 {
		t.Errorf("shortened: %+v %v", now, err)
	}
}

// Loosening changes only the window; missing entries are no error.
func TestLoosen(t *testing.T) {
	ns := tracked(t)
	var k Conntrack
	defer func() { _ = k.Close() }()
	all, err := k.List(ns, func(state.Connection) bool { return true })
	if err != nil {
		t.Fatal(err)
	}
	gone := all[0]
	gone.Src = netip.MustParseAddrPort("192.0.2.200:9")
	if gone.TCP == nil {
		gone.Proto, gone.TCP = 6, &state.ConntrackTCP{}
	}
	if err := k.SetTCPLiberal(ns, append(all, gone)); err != nil {
		t.Fatal(err)
	}
	now, err := k.List(ns, func(state.Connection) bool { return true })
	if err != nil || !slices.EqualFunc(all, now, state.ConntrackEntry.Same) {
		t.Errorf("%v\n%+v\n%+v", err, all, now)
	}
}
