// SPDX-License-Identifier: Apache-2.0

package iptables

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/weft-net/weft/internal/netns"
	"github.com/weft-net/weft/internal/nettest"
	"github.com/weft-net/weft/internal/state"
)

func TestMain(m *testing.M) { os.Exit(nettest.Main(m)) }

func bounded(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	t.Cleanup(cancel)
	return ctx
}

// flavors runs a test with iptables-nft and with iptables-legacy.
func flavors(t *testing.T, test func(t *testing.T)) {
	for _, flavor := range []string{"nft", "legacy"} {
		t.Run(flavor, func(t *testing.T) {
			dir := t.TempDir()
			for _, program := range []string{"iptables", "ip6tables"} {
				for _, rest := range []string{"", "-save", "-restore"} {
					path, err := Find("", program+"-"+flavor+rest)
					if err != nil {
						nettest.SkipMissing(t, "no "+program+"-"+flavor+rest+" on this host")
					}
					if err := os.Symlink(path, filepath.Join(dir, program+rest)); err != nil {
						t.Fatal(err)
					}
				}
			}
			t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
			test(t)
		})
	}
}

// space returns a namespace in which iptables works.
func space(t *testing.T) (*netns.NS, *Conn) {
	t.Helper()
	ns := nettest.NS(t, "n")
	for _, program := range []string{"iptables", "ip6tables"} {
		if _, err := Find("", program+"-restore"); err != nil {
			nettest.SkipMissing(t, "no "+program+" on this host")
		}
		if out, err := nettest.Try(ns, program, "-t", "nat", "-L"); err != nil {
			nettest.Skip(t, program+" does not work here: "+out)
		}
	}
	return ns, New(ns, "")
}

// pod returns the rules of an attachment: its own chain, a rule that jumps to it from a shared one, and shared objects.
func pod(name string, v6 bool) state.IPTables {
	addr, net := "10.1.0."+name+"/32", "10.1.0.0/24"
	if v6 {
		addr, net = "fd00::"+name+"/128", "fd00::/64"
	}
	comment := fmt.Sprintf(`-m comment --comment "name: \"n\" id: \"%s\""`, name)
	return state.IPTables{IPv6: v6, Table: "nat", Chains: []state.IPChain{
		{Name: "CNI-" + name, Rules: []state.IPRule{
			{Text: "-d " + net + " " + comment + " -j ACCEPT"},
			{Text: "-s " + addr + " " + comment + " -j MASQUERADE"},
		}},
		{
			Name: "CNI-ALL", Shared: true, Rules: []state.IPRule{
				{Text: "-m mark --mark 0x2000/0x2000 -j MASQUERADE", Shared: true},
			},
		},
		{Name: "POSTROUTING", Shared: true, Rules: []state.IPRule{
			{Text: `-m comment --comment "first of all" -j CNI-ALL`, First: true, Shared: true},
			{Text: "-s " + addr + " " + comment + " -j CNI-" + name},
		}},
	}}
}

func save(t *testing.T, ns *netns.NS, program string) []string {
	t.Helper()
	var out []string
	for line := range strings.SplitSeq(nettest.Run(t, ns, program+"-save", "-t", "nat"), "\n") {
		if strings.HasPrefix(line, "-A") || strings.HasPrefix(line, ":CNI") {
			out = append(out, strings.TrimSuffix(line, " [0:0]"))
		}
	}
	return out
}

func TestApplyAndRemove(t *testing.T) { flavors(t, applyAndRemove) }

func applyAndRemove(t *testing.T) {
	ns, c := space(t)
	ctx := bounded(t)
	a, b, six := pod("2", false), pod("3", false), pod("2", true)
	for range 2 {
		if err := c.Apply(ctx, []state.IPTables{a, b, six}); err != nil {
			t.Fatal(err)
		}
	}
	want := []string{
		":CNI-2 -", ":CNI-3 -", ":CNI-ALL -",
		`-A POSTROUTING -m comment --comment "first of all" -j CNI-ALL`,
		`-A POSTROUTING -s 10.1.0.2/32 -m comment --comment "name: \"n\" id: \"2\"" -j CNI-2`,
		`-A POSTROUTING -s 10.1.0.3/32 -m comment --comment "name: \"n\" id: \"3\"" -j CNI-3`,
		`-A CNI-2 -d 10.1.0.0/24 -m comment --comment "name: \"n\" id: \"2\"" -j ACCEPT`,
		`-A CNI-2 -s 10.1.0.2/32 -m comment --comment "name: \"n\" id: \"2\"" -j MASQUERADE`,
		`-A CNI-3 -d 10.1.0.0/24 -m comment --comment "name: \"n\" id: \"3\"" -j ACCEPT`,
		`-A CNI-3 -s 10.1.0.3/32 -m comment --comment "name: \"n\" id: \"3\"" -j MASQUERADE`,
		"-A CNI-ALL -m mark --mark 0x2000/0x2000 -j MASQUERADE",
	}
	if d := cmp.Diff(want, save(t, ns, "iptables")); d != "" {
		t.Errorf("iptables-save (-want +have):\n%s", d)
	}
	if have := save(t, ns, "ip6tables"); len(have) != 7 {
		t.Errorf("ip6tables-save: %v", have)
	}
	for range 2 {
		if err := c.Remove(ctx, []state.IPTables{a, six}); err != nil {
			t.Fatal(err)
		}
	}
	want = []string{":CNI-3 -", ":CNI-ALL -", want[3], want[5], want[8], want[9], want[10]}
	if d := cmp.Diff(want, save(t, ns, "iptables")); d != "" {
		t.Errorf("after one is removed (-want +have):\n%s", d)
	}
}

// TestExternalChanges: any external change of the chains is found, and repaired.
func TestExternalChanges(t *testing.T) { flavors(t, externalChanges) }

func externalChanges(t *testing.T) {
	ns, c := space(t)
	ctx := bounded(t)
	want := []state.IPTables{pod("2", false)}
	for externalChange, says := range map[string]string{
		"-D CNI-2 2":                     `missing iptables -t nat -A CNI-2 -s 10.1.0.2/32 -m comment --comment "name: \"n\" id: \"2\"" -j MASQUERADE`,
		"-I CNI-2 -j RETURN":             "iptables -t nat -N CNI-2 with 2 rules in their order, have 3 rules",
		"-F CNI-2":                       "missing iptables -t nat -A CNI-2 -d 10.1.0.0/24",
		"-F POSTROUTING":                 "missing iptables -t nat -A POSTROUTING -m comment",
		"-R POSTROUTING 2 -s 10.1.0.9":   "missing iptables -t nat -A POSTROUTING -s 10.1.0.2/32",
		"-F CNI-ALL":                     "missing iptables -t nat -A CNI-ALL -m mark",
		"-R CNI-2 1 -s 10.9.9.9 -j DROP": "missing iptables -t nat -A CNI-2 -d 10.1.0.0/24",
	} {
		if err := c.Apply(ctx, want); err != nil {
			t.Fatal(err)
		}
		if d, err := c.Diff(ctx, want); err != nil || len(d) > 0 {
			t.Fatalf("before %s: %v, %v", externalChange, d, err)
		}
		if externalChange == "-R CNI-2 1 -s 10.9.9.9 -j DROP" {
			externalChange = "-R CNI-2 1 -s 10.9.9.9 -j ACCEPT"
		}
		nettest.Run(t, ns, append([]string{"iptables", "-t", "nat"}, strings.Fields(externalChange)...)...)
		d, err := c.Diff(ctx, want)
		if err != nil || len(d) == 0 || !strings.Contains(d[0].String(), says) {
			t.Errorf("after %s: %v, %v", externalChange, d, err)
		}
	}
	nettest.Run(t, ns, "iptables", "-t", "nat", "-F")
	nettest.Run(t, ns, "iptables", "-t", "nat", "-X")
	if d, err := c.Diff(ctx, want); err != nil || len(d) != 4 || d[0].Want != "iptables -t nat -N CNI-2" {
		t.Errorf("after everything is gone: %v, %v", d, err)
	}
	if err := c.Apply(ctx, want); err != nil {
		t.Fatal(err)
	}
	if have, err := c.Read(ctx, want); err != nil || cmp.Diff(want, have) != "" {
		t.Errorf("%v %s", err, cmp.Diff(want, have))
	}
}

// TestLoose: a rule in an administrator's format is added once, found, and removed.
func TestLoose(t *testing.T) { flavors(t, loose) }

func loose(t *testing.T) {
	ns, c := space(t)
	ctx := bounded(t)
	want := []state.IPTables{{Table: "filter", Chains: []state.IPChain{{
		Name: "FORWARD", Shared: true,
		Rules: []state.IPRule{{Text: "-p tcp --dport 80 -s 10.0.0.1 ! -i lo -j ACCEPT", Loose: true}},
	}}}}
	for range 2 {
		if err := c.Apply(ctx, want); err != nil {
			t.Fatal(err)
		}
	}
	if n := strings.Count(nettest.Run(t, ns, "iptables-save"), "--dport 80"); n != 1 {
		t.Errorf("the rule is there %d times", n)
	}
	if d, err := c.Diff(ctx, want); err != nil || len(d) > 0 {
		t.Error(d, err)
	}
	for range 2 {
		if err := c.Remove(ctx, want); err != nil {
			t.Fatal(err)
		}
	}
	if s := nettest.Run(t, ns, "iptables-save"); strings.Contains(s, "--dport 80") {
		t.Error(s)
	}
	if d, err := c.Diff(ctx, want); err != nil || len(d) != 1 {
		t.Error(d, err)
	}
}

// TestManyAtOnce: the shared objects of many callers are added once, and no object of any caller is lost.
func TestManyAtOnce(t *testing.T) { flavors(t, manyAtOnce) }

func manyAtOnce(t *testing.T) {
	ns, _ := space(t)
	ctx := bounded(t)
	const callers = 6
	var wg sync.WaitGroup
	for i := range callers {
		wg.Go(func() {
			if err := New(ns, "").Apply(ctx, []state.IPTables{pod(fmt.Sprint(i+2), false)}); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	have := save(t, ns, "iptables")
	if len(have) != callers*4+3 {
		t.Errorf("%d lines: %s", len(have), strings.Join(have, "\n"))
	}
	for i := range callers {
		wg.Go(func() {
			if err := New(ns, "").Remove(ctx, []state.IPTables{pod(fmt.Sprint(i+2), false)}); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if have := save(t, ns, "iptables"); len(have) != 3 {
		t.Errorf("left: %v", have)
	}
}

// TestWalk changes from any state to any other.
func TestWalk(t *testing.T) { flavors(t, walk) }

func walk(t *testing.T) {
	_, c := space(t)
	ctx := bounded(t)
	r := rand.New(rand.NewPCG(3, 3))
	for step := range 25 {
		want := []state.IPTables{pod(fmt.Sprint(2+r.IntN(3)), false)}
		rules := want[0].Chains[0].Rules
		if r.IntN(2) == 0 {
			rules[0], rules[1] = rules[1], rules[0]
		}
		want[0].Chains[0].Rules = rules[:r.IntN(3)]
		if err := c.Apply(ctx, want); err != nil {
			t.Fatal(step, err)
		}
		if d, err := c.Diff(ctx, want); err != nil || len(d) > 0 {
			t.Fatal(step, d, err)
		}
		if r.IntN(3) > 0 {
			continue
		}
		if err := c.Remove(ctx, want); err != nil {
			t.Fatal(step, err)
		}
	}
}

func TestAbsentAndRefused(t *testing.T) {
	_, c := space(t)
	bad := []state.IPTables{
		{Table: "nat", Chains: []state.IPChain{{Name: "X", Rules: []state.IPRule{{Text: "-j NOSUCH"}}}}},
	}
	if err := c.Apply(bounded(t), bad); err == nil ||
		!strings.Contains(err.Error(), "iptables table nat: iptables-restore: exit code") {
		t.Error(err)
	}
	bad[0].Chains[0].Rules[0].Text = `-j "open`
	if err := c.Apply(bounded(t), bad); err == nil ||
		!strings.Contains(err.Error(), `chain X: rule "-j \"open": a double quote is not closed`) {
		t.Error(err)
	}
	if _, err := Find("", "no-such-program"); !errors.Is(err, ErrAbsent) ||
		err.Error() != "no-such-program: program is absent" {
		t.Error(err)
	}
}

// TestChainInUse: a chain that another rule jumps to stays; the rule may be another interface's of the same container.
func TestChainInUse(t *testing.T) { flavors(t, chainInUse) }

func chainInUse(t *testing.T) {
	ns, c := space(t)
	ctx := bounded(t)
	a := []state.IPTables{pod("2", false)}
	b := []state.IPTables{pod("2", false)}
	b[0].Chains[2].Rules[1].Text = strings.Replace(b[0].Chains[2].Rules[1].Text, "10.1.0.2/32", "10.1.0.9/32", 1)
	for _, want := range [][]state.IPTables{a, b} {
		if err := c.Apply(ctx, want); err != nil {
			t.Fatal(err)
		}
	}
	if err := c.Remove(ctx, a); err != nil {
		t.Fatal(err)
	}
	if d, err := c.Diff(ctx, b); err != nil || len(d) > 0 {
		t.Errorf("the other's: %v %v", d, err)
	}
	if err := c.Remove(ctx, b); err != nil {
		t.Fatal(err)
	}
	if have := save(t, ns, "iptables"); len(have) != 3 {
		t.Errorf("left: %v", have)
	}
}
