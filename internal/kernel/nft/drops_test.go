// SPDX-License-Identifier: Apache-2.0

package nft

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/weft-net/weft/internal/nettest"
	"github.com/weft-net/weft/internal/state"
)

// TestDrops finds chains that drop forwarded packets, also after they changed.
func TestDrops(t *testing.T) {
	ns := nettest.NS(t, "n")
	c := dial(t, ns)
	want := func(chains ...string) {
		t.Helper()
		for range 2 {
			drops, err := c.Drops(bounded(t))
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, d := range drops {
				got = append(got, d.String())
			}
			slices.Sort(got)
			if !slices.Equal(got, chains) {
				t.Errorf("%q, want %q", got, chains)
			}
		}
	}
	want()
	for _, chain := range []string{
		"ip filter FORWARD { type filter hook forward priority 0; policy drop; }",
		"ip6 filter FORWARD { type filter hook forward priority 0; policy accept; }",
		"ip filter INPUT { type filter hook input priority 0; policy drop; }",
		"inet mine f { type filter hook forward priority 5; policy drop; }",
		"bridge b f { type filter hook forward priority 5; policy drop; }",
		"inet weft_x f { type filter hook forward priority 5; policy drop; }",
	} {
		words := strings.Fields(chain)
		nettest.Run(t, ns, "nft", fmt.Sprintf("add table %s %s; add chain %s", words[0], words[1], chain))
	}
	want("inet mine f", "ip filter FORWARD")
	if err := c.Apply(bounded(t), []state.Table{masq("10.1.0.2")}); err != nil { // our own table changes nothing
		t.Fatal(err)
	}
	want("inet mine f", "ip filter FORWARD")
	nettest.Run(t, ns, "nft", "chain ip filter FORWARD { policy accept; }; delete table inet mine")
	want()
}

// TestSharedElements stay when one of their owners is removed, and are deleted with the table.
func TestSharedElements(t *testing.T) {
	ns := nettest.NS(t, "n")
	c := dial(t, ns)
	part := func(addr string) []state.Table {
		return []state.Table{{Family: "inet", Name: "weft_x", Shared: true, Sets: []state.Set{
			{
				Name: "bridges", Key: "ifname", Elements: []state.Element{
					{Key: []string{`"br0"`}, Comment: state.SharedComment, Shared: true},
				},
			},
			{
				Name: "pods", Key: "ipv4_addr", Elements: []state.Element{
					{Key: []string{addr}, Comment: "weft:net/" + addr + "/eth0"},
				},
			},
		}}}
	}
	list := func() string {
		out, err := nettest.Try(ns, "nft", "list", "table", "inet", "weft_x")
		if err != nil {
			return ""
		}
		return out
	}
	for _, addr := range []string{"10.0.0.1", "10.0.0.2"} {
		if err := c.Apply(bounded(t), part(addr)); err != nil {
			t.Fatal(err)
		}
	}
	for _, step := range []struct {
		gone         string
		bridge, left bool
	}{{"10.0.0.1", true, true}, {"10.0.0.2", true, false}} {
		if err := c.Remove(bounded(t), part(step.gone)); err != nil {
			t.Fatal(err)
		}
		if out := list(); strings.Contains(out, step.gone) || strings.Contains(out, `"br0"`) != step.bridge {
			t.Errorf("after %s went: %s", step.gone, out)
		}
		if err := c.RemoveShared(bounded(t), part(step.gone)); err != nil {
			t.Fatal(err)
		}
		if out := list(); (out != "") != step.left {
			t.Errorf("after %s went and its table was tried: %s", step.gone, out)
		}
	}
}
