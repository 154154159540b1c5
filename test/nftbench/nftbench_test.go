// SPDX-License-Identifier: Apache-2.0

package nftbench

import (
	"fmt"
	"os"
	"runtime"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/weft-net/weft/internal/kernel/nft"
	"github.com/weft-net/weft/internal/kernel/nft/lang"
	"github.com/weft-net/weft/internal/netns"
	"github.com/weft-net/weft/internal/nettest"
	"github.com/weft-net/weft/internal/state"
)

func TestMain(m *testing.M) { os.Exit(nettest.Main(m)) }

const family, name = "inet", "weft-bench"

func text(lines ...string) []state.NftRule {
	out := make([]state.NftRule, len(lines))
	for i, l := range lines {
		out[i] = state.NftRule{Text: l}
	}
	return out
}

// ruleset returns a node's table: masquerade, host ports, and the endpoint chains of pods.
func ruleset(pods int) state.Table {
	t := state.Table{
		Family: family, Name: name,
		Sets: []state.Set{
			{Name: "masq4", Key: "ipv4_addr"},
			{Name: "nomasq4", Key: "ipv4_addr . ipv4_addr", Interval: true},
			{Name: "ports", Key: "inet_proto . inet_service", Data: "ipv4_addr . inet_service"},
			{Name: "endpoints", Key: "ipv4_addr", Data: "verdict"},
			{Name: "peers", Key: "ipv4_addr"},
		},
		Chains: []state.Chain{
			{Name: "postrouting", Type: "nat", Hook: "postrouting", Priority: 100, Policy: "accept", Rules: text(
				"ip daddr 224.0.0.0/4 return", "ip saddr . ip daddr @nomasq4 return", "ip saddr @masq4 masquerade")},
			{Name: "forward", Type: "filter", Hook: "forward", Policy: "accept", Rules: text("ip daddr vmap @endpoints")},
		},
	}
	for i := range pods {
		one := pod(i)
		for k := range one.Sets {
			t.Sets[k].Elements = append(t.Sets[k].Elements, one.Sets[k].Elements...)
		}
		c := endpoint(i)
		t.Chains = append(t.Chains, c.AddChains...)
		t.Sets[3].Elements = append(t.Sets[3].Elements, c.AddElements[0].Elements...)
	}
	return t
}

func ip(i int) string { return fmt.Sprintf("10.%d.%d.%d", 1+i>>14, i>>7&127, 1+i&127) }

// pod returns the elements that an ADD adds to shared sets: bridge's masquerade, two of portmap's ports.
func pod(i int) state.Table {
	owner := fmt.Sprintf("weft:net:container%d:eth0", i)
	e := func(val []string, key ...string) state.Element {
		return state.Element{Key: key, Val: val, Comment: owner}
	}
	return state.Table{Family: family, Name: name, Shared: true, Sets: []state.Set{
		{Name: "masq4", Key: "ipv4_addr", Elements: []state.Element{e(nil, ip(i))}},
		{
			Name: "nomasq4", Key: "ipv4_addr . ipv4_addr", Interval: true,
			Elements: []state.Element{e(nil, ip(i), "10.0.0.0/8")},
		},
		{Name: "ports", Key: "inet_proto . inet_service", Data: "ipv4_addr . inet_service", Elements: []state.Element{
			e([]string{ip(i), "80"}, "tcp", fmt.Sprint(10000+i)), e([]string{ip(i), "53"}, "udp", fmt.Sprint(10000+i)),
		}},
	}}
}

// endpoint returns a pod's chain, and the element that jumps to it.
func endpoint(i int) state.TableChange {
	chain := fmt.Sprintf("ep-%d", i)
	return state.TableChange{
		Family: family, Name: name,
		AddChains: []state.Chain{
			{Name: chain, Rules: text("ct state established,related accept", "ip saddr @peers tcp dport 80 accept",
				"ip saddr @peers udp dport 53 accept", "ip saddr 192.0.2.0/24 accept", "meta mark 0x00000001 accept",
				"counter drop")},
		},
		AddElements: []state.Set{{
			Name: "endpoints", Key: "ipv4_addr", Data: "verdict",
			Elements: []state.Element{{Key: []string{ip(i)}, Val: []string{"goto " + chain}}},
		}},
	}
}

// pair is both drivers, each in a namespace with the same ruleset.
type pair struct {
	weft    *nft.Conn
	lib     *library
	witness *nft.Conn // weft's driver in the library's namespace
}

func both(tb testing.TB, pods int) pair {
	tb.Helper()
	one, other := nettest.NS(tb, "weft"), nettest.NS(tb, "library")
	dial := func(ns *netns.NS) *nft.Conn {
		c, err := nft.Dial(ns)
		if err != nil {
			tb.Fatal(err)
		}
		tb.Cleanup(func() { _ = c.Close() })
		return c
	}
	p := pair{dial(one), dialLibrary(tb, other), dial(other)}
	if pods >= 0 {
		if err := p.weft.Apply(tb.Context(), []state.Table{shared(ruleset(pods))}); err != nil {
			tb.Fatal(err)
		}
		if err := p.lib.apply(ruleset(pods), true); err != nil {
			tb.Fatal(err)
		}
	}
	return p
}

func shared(t state.Table) state.Table {
	t.Shared = true
	return t
}

// TestSame: both drivers write the same ruleset.
func TestSame(t *testing.T) {
	p := both(t, 5)
	for i := 5; i < 8; i++ {
		if err := p.weft.Apply(t.Context(), []state.Table{pod(i)}); err != nil {
			t.Fatal(err)
		}
		if err := p.lib.apply(pod(i), false); err != nil {
			t.Fatal(err)
		}
		if err := p.weft.Change(t.Context(), []state.TableChange{endpoint(i)}); err != nil {
			t.Fatal(err)
		}
		if err := p.lib.change(endpoint(i)); err != nil {
			t.Fatal(err)
		}
	}
	for who, c := range map[string]*nft.Conn{"weft": p.weft, "the library": p.witness} {
		have, err := c.Read(t.Context(), []state.Table{ruleset(8)})
		if err != nil {
			t.Fatal(err)
		}
		if d := lang.Diff([]state.Table{ruleset(8)}, have); len(d) > 0 {
			t.Errorf("the ruleset of %s differs: %v", who, d)
		}
	}
}

// compare runs both alternately and reports median times, their ratio, and allocations per run.
func compare(b *testing.B, weft, library func(i int) error) {
	b.Helper()
	sides := []func(int) error{weft, library}
	var times [2][]time.Duration
	n := 0
	run := func(side int) {
		begun := time.Now()
		if err := sides[side](n); err != nil {
			b.Fatal(err)
		}
		times[side] = append(times[side], time.Since(begun))
	}
	for ; b.Loop(); n++ {
		run(n & 1)
		run(n&1 ^ 1)
	}
	var medians [2]float64
	for side, label := range []string{"weft", "library"} {
		var before, after runtime.MemStats
		const runs = 20
		runtime.ReadMemStats(&before)
		for range runs {
			if err := sides[side](n); err != nil {
				b.Fatal(err)
			}
			n++
		}
		runtime.ReadMemStats(&after)
		b.ReportMetric(float64(after.Mallocs-before.Mallocs)/runs, label+"-allocs")
		b.ReportMetric(float64(after.TotalAlloc-before.TotalAlloc)/runs, label+"-B")
		slices.Sort(times[side])
		medians[side] = float64(times[side][len(times[side])/2].Microseconds())
		b.ReportMetric(medians[side], label+"-µs")
	}
	b.ReportMetric(medians[1]/medians[0], "library/weft")
	b.ReportMetric(0, "ns/op")
}

// BenchmarkAdd: the elements of an ADD, guarded, into the tables of 100 pods.
func BenchmarkAdd(b *testing.B) {
	p := both(b, 100)
	compare(b, func(i int) error { return p.weft.Apply(b.Context(), []state.Table{pod(200 + i)}) },
		func(i int) error { return p.lib.apply(pod(200+i), false) })
}

// BenchmarkChain: an endpoint's chain of six rules, and the element that jumps to it.
func BenchmarkChain(b *testing.B) {
	p := both(b, 100)
	compare(b, func(i int) error { return p.weft.Change(b.Context(), []state.TableChange{endpoint(200 + i)}) },
		func(i int) error { return p.lib.change(endpoint(200 + i)) })
}

// BenchmarkRuleset: a whole table of 200 pods: 1,000 elements and 1,200 rules, created and deleted.
func BenchmarkRuleset(b *testing.B) {
	p := both(b, -1)
	in := ruleset(200)
	compare(b, func(int) error {
		if err := p.weft.Apply(b.Context(), []state.Table{in}); err != nil {
			return err
		}
		return p.weft.Remove(b.Context(), []state.Table{in})
	}, func(int) error {
		if err := p.lib.apply(in, true); err != nil {
			return err
		}
		return p.lib.drop(unix.NFPROTO_INET, name)
	})
}

// BenchmarkRead: that table read back. weft also converts it to text and compares it with the plan; the library only
// reads.
func BenchmarkRead(b *testing.B) {
	p := both(b, 200)
	in := ruleset(200)
	compare(b, func(int) error { return p.weft.Apply(b.Context(), []state.Table{in}) }, func(int) error {
		sets, elements, rules, err := p.lib.read(unix.NFPROTO_INET, name)
		if err == nil && (sets != 5 || elements < 1000 || rules != 1204) {
			err = fmt.Errorf("%d sets, %d elements, %d rules", sets, elements, rules)
		}
		return err
	})
}
