// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"context"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/weft-net/weft/internal/kernel/nft"
	"github.com/weft-net/weft/internal/kernel/nft/lang"
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/nettest"
	"github.com/weft-net/weft/internal/state"
)

func TestMain(m *testing.M) { os.Exit(nettest.Main(m)) }

func bounded(t testing.TB) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// TestKernelReadsGolden loads the golden files with nft, and nft prints them as they are: the text and the kernel's
// bytes are equal.
func TestKernelReadsGolden(t *testing.T) {
	files, err := filepath.Glob("testdata/*.nft")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if filepath.Base(file) == "tap.nft" {
			continue // TestKernelTakesTap: nft has words for what errors quote, but wants sets of other types for them
		}
		ns := nettest.NS(t, "n")
		path, err := filepath.Abs(file)
		if err != nil {
			t.Fatal(err)
		}
		nettest.Run(t, ns, "nft", "-f", path)
		want := string(text)
		if first, rest, _ := strings.Cut(want, "\n"); strings.HasPrefix(first, "#") {
			want = rest
		}
		got := nettest.Run(t, ns, "nft", "-s", "list", "ruleset")
		// what newer ones say of a limit without a burst
		got = strings.ReplaceAll(got, " burst 5 packets", "")
		for name, number := range map[string]string{ // nft's names of types and codes
			"icmpv6 type mld2-listener-report": "icmpv6 type 143", "icmpv6 type nd-redirect": "icmpv6 type 137",
			"icmpv6 code no-route": "icmpv6 code 0", "icmp type redirect": "icmp type 5",
			"icmp code != net-unreachable": "icmp code != 0", "timestamp-request": "13",
		} {
			got = strings.ReplaceAll(got, name, number)
		}
		if diff := cmp.Diff(strings.TrimSpace(want), strings.TrimSpace(got)); diff != "" {
			t.Errorf("%s (-) and what nft prints (+):\n%s", file, diff)
		}
	}
}

// TestKernelHistories writes what changes in random histories into the kernel, each change as one transaction that
// reads nothing. At any time the kernel must hold the table, and refuse nothing.
func TestKernelHistories(t *testing.T) {
	ns := nettest.NS(t, "n")
	c, err := nft.Dial(ns)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	ctx := bounded(t)
	rapid.Check(t, func(r *rapid.T) {
		if err := c.Remove(ctx, []state.Table{{Family: TableFamily, Name: TableName}}); err != nil {
			// of a history that failed
			r.Fatal(err)
		}
		f := newFacts()
		f.cfg = Config{Node: "n1", LogGroup: 7, SeparateChains: rapid.IntRange(0, 1).Draw(r, "apart")}
		x := New(f.cfg)
		for range 5 {
			for range rapid.IntRange(1, 12).Draw(r, "at once") {
				f.step(r, x)
			}
			write(ctx, r, c, x)
		}
		for k := range f.endpoints {
			x.DelEndpoint(k)
		}
		write(ctx, r, c, x)
	})
}

// write writes the changes of the node's table and compares.
func write(ctx context.Context, t *rapid.T, c *nft.Conn, x *Index) {
	for _, change := range x.Changes() {
		if !change.Point.node() {
			continue
		}
		var err error
		switch {
		case change.Gone:
			err = c.Remove(ctx, []state.Table{{Family: TableFamily, Name: TableName}})
		case change.Made:
			err = c.Apply(ctx, []state.Table{
				{Family: TableFamily, Name: TableName, Sets: change.AddSets, Chains: change.AddChains},
			})
		default:
			err = c.Change(ctx, []state.TableChange{change.TableChange})
		}
		if err != nil {
			t.Fatalf("%+v: %v", change, err)
		}
	}
	have, err := c.ReadAll(ctx)
	if err != nil {
		t.Fatal(err)
	}
	var want []state.Table
	for _, table := range x.Tables() {
		if table.Point.node() {
			want = append(want, table.Table)
		}
	}
	if len(want) != len(have) {
		t.Fatalf("%d tables in the kernel, want %d", len(have), len(want))
	}
	if d := lang.Diff(want, have); len(d) > 0 {
		t.Fatalf("the kernel differs: %v", d)
	}
}

// BenchmarkKernelOneMore is one more address in sets of 10,000, with the transaction.
func BenchmarkKernelOneMore(b *testing.B) {
	ns := nettest.NS(b, "n")
	c, err := nft.Dial(ns)
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	x := New(Config{Node: "n1"})
	x.SetNamespace(model.Namespace{Name: "x"})
	pod := func(i int) model.Pod {
		return model.Pod{
			Namespace: "x", Name: "p" + strconv.Itoa(i),
			IPs: addrs("10." + strconv.Itoa(i>>16) + "." + strconv.Itoa(i>>8&255) + "." + strconv.Itoa(i&255)),
		}
	}
	for i := range 10_000 {
		x.SetPod(pod(i))
	}
	x.SetEndpoint(model.WorkloadEndpoint{
		Pod: model.PodRef{Namespace: "x", Name: pod(0).Name}, Node: "n1", IfName: "eth0", HostLink: "l",
		HostEnd: model.HostEndRouted,
	})
	x.SetPolicy(model.Policy{
		PolicyKey: model.PolicyKey{Kind: model.KindNetworkPolicy, Namespace: "x", Name: "p"},
		Subject:   model.PodPeer{Namespace: "x"},
		Ingress: model.PolicyDirection{
			On: true, Rules: []model.PolicyRule{
				{Action: model.PolicyAccept, AnyPort: true, Peers: []model.PolicyPeer{{Pods: &model.PodPeer{Namespace: "x"}}}},
			},
		},
	})
	sync := func() {
		for _, change := range x.Changes() {
			if change.Made {
				if err := c.Apply(context.Background(), []state.Table{
					{Family: TableFamily, Name: TableName, Sets: change.AddSets, Chains: change.AddChains},
				}); err != nil {
					b.Fatal(err)
				}
				continue
			}
			if err := c.Change(context.Background(), []state.TableChange{change.TableChange}); err != nil {
				b.Fatal(err)
			}
		}
	}
	sync()
	for b.Loop() {
		x.SetPod(pod(10_001))
		sync()
		x.DelPod("x", pod(10_001).Name)
		sync()
	}
}
