// SPDX-License-Identifier: Apache-2.0

package nft

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/weft-net/weft/internal/kernel/nft/lang"
	"github.com/weft-net/weft/internal/nettest"
	"github.com/weft-net/weft/internal/state"
)

// policyTable returns a table like that of policies: packets of the addresses in the map pass a chain, whose peers are in a
// set.
func policyTable(peers, subjects string, chains ...string) state.Table {
	list := func(s, form string) []state.Element {
		var out []state.Element
		for _, w := range strings.Fields(s) {
			out = append(out, elements(fmt.Sprintf(form, w))...)
		}
		return out
	}
	t := state.Table{
		Family: "inet", Name: "weft-policy",
		Sets: []state.Set{
			{Name: "peers", Key: "ipv4_addr", Elements: list(peers, "10.0.0.%s")},
			{Name: "subjects", Key: "ifname", Data: "verdict", Elements: list(subjects, `"p%s" : goto first`)},
		},
		Chains: []state.Chain{
			{Name: "first", Rules: rules("ip saddr @peers accept\n counter drop  # np/shop/web")},
			{
				Name: "ingress", Type: "filter", Hook: "forward", Policy: "accept",
				Rules: rules("ct state established,related accept\n oifname vmap @subjects"),
			},
		},
	}
	for _, c := range chains {
		t.Chains = append(t.Chains, state.Chain{Name: c, Rules: rules("drop")})
	}
	return t
}

func elementsOf(t state.Table, set string, keys ...string) []state.Set {
	for _, s := range t.Sets {
		if s.Name == set {
			s.Elements = elements(keys...)
			return []state.Set{s}
		}
	}
	return nil
}

// A change results in the same table as Apply, in one transaction, and Apply has nothing to do after it.
func TestChange(t *testing.T) {
	was := policyTable("1 2", "1 2")
	for _, tt := range []struct {
		name   string
		change state.TableChange
		want   state.Table
	}{
		{"elements", state.TableChange{
			AddElements: elementsOf(was, "peers", "10.0.0.3"), DeleteElements: elementsOf(was, "peers", "10.0.0.1"),
		}, policyTable("2 3", "1 2")},
		{"another value", state.TableChange{
			AddChains:      []state.Chain{{Name: "second", Rules: rules("drop")}},
			DeleteElements: elementsOf(was, "subjects", `"p2"`), AddElements: elementsOf(was, "subjects", `"p2" : goto second`),
		}, func() state.Table {
			w := policyTable("1 2", "1", "second")
			w.Sets[1].Elements = append(w.Sets[1].Elements, elements(`"p2" : goto second`)...)
			return w
		}()},
		{"new set, other rules", state.TableChange{
			AddSets:   []state.Set{{Name: "nets", Key: "ipv4_addr", Interval: true, Elements: elements("10.0.0.0/8")}},
			AddChains: []state.Chain{{Name: "first", Rules: rules("ip saddr @nets accept\n ip saddr @peers accept\n drop")}},
		}, func() state.Table {
			w := policyTable("1 2", "1 2")
			w.Sets = append(w.Sets, state.Set{Name: "nets", Key: "ipv4_addr", Interval: true, Elements: elements("10.0.0.0/8")})
			w.Chains[0].Rules = rules("ip saddr @nets accept\n ip saddr @peers accept\n drop")
			return w
		}()},
		{"all goes", state.TableChange{
			AddChains: []state.Chain{
				{Name: "ingress", Type: "filter", Hook: "forward", Policy: "accept", Rules: rules("accept")},
			},
			DeleteElements: elementsOf(was, "subjects", `"p1"`, `"p2"`), DeleteChains: []string{"first"},
			DeleteSets: []string{"subjects", "peers"},
		}, state.Table{Family: "inet", Name: "weft-policy", Chains: []state.Chain{
			{Name: "ingress", Type: "filter", Hook: "forward", Policy: "accept", Rules: rules("accept")},
		}}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			ns := nettest.NS(t, "n")
			c := dial(t, ns)
			apply(t, c, was)
			before := gen(t, ns)
			tt.change.Family, tt.change.Name = was.Family, was.Name
			if err := c.Change(bounded(t), []state.TableChange{tt.change}); err != nil {
				t.Fatal(err)
			}
			if now := gen(t, ns); now != before+1 {
				t.Errorf("%d transactions", now-before)
			}
			have, err := c.ReadAll(bounded(t))
			if err != nil {
				t.Fatal(err)
			}
			if d := lang.Diff([]state.Table{tt.want}, have); len(d) > 0 {
				t.Fatalf("after the change: %v", d)
			}
			before = gen(t, ns)
			apply(t, c, tt.want)
			if now := gen(t, ns); now != before {
				t.Error("Apply writes something after the change")
			}
		})
	}
}

// A change that does not apply changes nothing, and returns an error; an invalid one is refused before the kernel is
// asked.
func TestChangeUnfit(t *testing.T) {
	ns := nettest.NS(t, "n")
	c := dial(t, ns)
	was := policyTable("1", "1")
	apply(t, c, was)
	want := list(t, ns, was)
	for name, bad := range map[string]state.TableChange{
		"unknown element": {
			AddElements: elementsOf(was, "peers", "10.0.0.9"), DeleteElements: elementsOf(was, "peers", "10.0.0.7"),
		},
		"unknown set":   {AddElements: []state.Set{{Name: "other", Key: "ipv4_addr", Elements: elements("10.0.0.9")}}},
		"unknown chain": {AddElements: elementsOf(was, "subjects", `"p9" : goto nowhere`)},
		"chain in use":  {DeleteChains: []string{"first"}},
	} {
		bad.Family, bad.Name = was.Family, was.Name
		if err := c.Change(bounded(t), []state.TableChange{bad}); !errors.Is(err, ErrStale) {
			t.Errorf("%s: %v", name, err)
		}
	}
	broken := state.TableChange{
		Family: was.Family, Name: was.Name, AddChains: []state.Chain{{Name: "x", Rules: rules("frobnicate")}},
	}
	if err := c.Change(bounded(t), []state.TableChange{broken}); err == nil || errors.Is(err, ErrStale) ||
		!strings.Contains(err.Error(), "frobnicate") {
		t.Errorf("a rule that is not understood: %v", err)
	}
	if got := list(t, ns, was); got != want {
		t.Errorf("a refused change left\n%s", got)
	}
}

// Ten thousand addresses are one transaction.
func TestChangeOfMany(t *testing.T) {
	ns := nettest.NS(t, "n")
	c := dial(t, ns)
	was := policyTable("", "1")
	apply(t, c, was)
	add := elementsOf(was, "peers")
	for i := range 10_000 {
		add[0].Elements = append(add[0].Elements, state.Element{Key: []string{fmt.Sprintf("10.1.%d.%d", i/250, i%250)}})
	}
	before := gen(t, ns)
	if err := c.Change(bounded(t), []state.TableChange{
		{Family: was.Family, Name: was.Name, AddElements: add},
	}); err != nil {
		t.Fatal(err)
	}
	if now := gen(t, ns); now != before+1 {
		t.Errorf("%d transactions", now-before)
	}
	if out := nettest.Run(t, ns, "nft", "get element inet weft-policy peers { 10.1.39.249 }"); !strings.Contains(out,
		"10.1.39.249") {
		t.Error(out)
	}
}

// Counters are reported by the comments of their rules.
func TestCounts(t *testing.T) {
	ns := nettest.NS(t, "n")
	c := dial(t, ns)
	if got, err := c.Counts(bounded(t), "inet", "weft-policy"); err != nil || len(got) > 0 {
		t.Errorf("no table: %v %v", got, err)
	}
	tbl := policyTable("", "")
	tbl.Chains = append(tbl.Chains, state.Chain{
		Name: "out", Type: "filter", Hook: "output", Policy: "accept", Rules: rules("counter accept  # mine\n counter"),
	})
	apply(t, c, tbl)
	nettest.Run(t, ns, "ip", "link", "set", "lo", "up")
	nettest.Run(t, ns, "ping", "-c2", "-i0.1", "-W20", "127.0.0.1")
	got, err := c.Counts(bounded(t), "inet", "weft-policy")
	if err != nil || len(got) != 2 || got[0] != (Count{Comment: "np/shop/web"}) || got[1].Comment != "mine" ||
		got[1].Packets != 4 || got[1].Bytes != 4*84 {
		t.Errorf("%+v %v", got, err)
	}
}
