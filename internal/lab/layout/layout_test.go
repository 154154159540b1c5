// SPDX-License-Identifier: Apache-2.0

package layout

import (
	"errors"
	"net/netip"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/weft-net/weft/internal/model"
)

func prefixes(s string) []netip.Prefix {
	var out []netip.Prefix
	for _, p := range strings.Fields(s) {
		out = append(out, netip.MustParsePrefix(p))
	}
	return out
}

// text joins prefixes.
func text(in []netip.Prefix) string {
	var out []string
	for _, p := range in {
		out = append(out, p.String())
	}
	return strings.Join(out, " ")
}

func TestLayout(t *testing.T) {
	l, err := Spec{Name: "t", Nodes: 2, Wires: 2, ClusterCIDRs: prefixes("10.42.0.0/16 fd42::/48")}.Layout()
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, n := range l.Nodes {
		line := n.Name
		for _, w := range n.Addrs {
			line += " " + text(w)
		}
		got = append(got, line+" pods "+text(n.PodCIDRs))
	}
	want := []string{
		"node1 172.18.0.1/24 fd18::1/64 172.18.1.1/24 fd18:0:0:1::1/64 pods 10.42.1.0/24 fd42:0:0:1::/64",
		"node2 172.18.0.2/24 fd18::2/64 172.18.1.2/24 fd18:0:0:1::2/64 pods 10.42.2.0/24 fd42:0:0:2::/64",
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
}

func TestInvalidSpec(t *testing.T) {
	for _, c := range []struct {
		nodes, wires int
		cidrs, want  string
	}{
		{0, 2, "10.42.0.0/16", "--nodes 0 is out of range"},
		{201, 2, "10.42.0.0/16", "--nodes 201 is out of range"},
		{3, 0, "10.42.0.0/16", "--wires 0 is out of range"},
		{3, 9, "10.42.0.0/16", "--wires 9 is out of range"},
		{3, 2, "", "cluster CIDR is empty"},
		{3, 2, "10.42.0.1/16", "cluster CIDR 10.42.0.1/16 has bits set"},
		{3, 2, "10.42.0.0/16 10.43.0.0/16", "10.42.0.0/16 and 10.43.0.0/16 are of the same family"},
		{3, 2, "172.16.0.0/12", "cluster CIDR 172.16.0.0/12 overlaps 172.18.0.0/16"},
		{3, 2, "10.42.0.0/28", "cluster CIDR 10.42.0.0/28 is too small for 3 nodes"},
		{3, 2, "fd42::/124", "cluster CIDR fd42::/124 is too small for 3 nodes"},
	} {
		_, err := Spec{Name: "t", Nodes: c.nodes, Wires: c.wires, ClusterCIDRs: prefixes(c.cidrs)}.Layout()
		var f *model.Error
		if !errors.As(err, &f) || !strings.Contains(f.Msg, c.want) || f.Hint == "" {
			t.Errorf("%d nodes, %d wires, %s: got %v; want an error %q with a hint", c.nodes, c.wires, c.cidrs, err, c.want)
		}
	}
}

// An unknown level is refused before anything is created.
func TestInvalidObserve(t *testing.T) {
	_, err := Spec{Name: "t", Nodes: 1, Wires: 1, ClusterCIDRs: prefixes("10.42.0.0/16"), Observe: "all"}.Layout()
	const want = `--observe "all" is not off, denied or flows`
	if err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("%v, want %s", err, want)
	}
}

// TestNodeCIDRsDoNotOverlap: for any prefix and number of nodes, the nodes' prefixes are inside of it and do not overlap.
func TestNodeCIDRsDoNotOverlap(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		whole := netip.MustParsePrefix("10.128.0.0/9").Addr()
		bits := rapid.IntRange(9, 29).Draw(t, "bits")
		if rapid.Bool().Draw(t, "IPv6") {
			whole = netip.MustParseAddr("fd42::")
			bits = rapid.IntRange(40, 125).Draw(t, "bits6")
		}
		c := netip.PrefixFrom(whole, bits).Masked()
		n := rapid.IntRange(1, MaxNodes).Draw(t, "nodes")
		var parts []netip.Prefix
		for i := range n {
			p, err := nodeCIDR(c, i, n)
			if err != nil {
				if i > 0 {
					t.Fatalf("node %d is refused but node 0 was not: %v", i, err)
				}
				return
			}
			if !c.Contains(p.Addr()) || p != p.Masked() || p.Bits() < c.Bits() {
				t.Fatalf("part %s is not inside %s", p, c)
			}
			for _, q := range parts {
				if p.Overlaps(q) {
					t.Fatalf("parts %s and %s of %s overlap", p, q, c)
				}
			}
			parts = append(parts, p)
		}
	})
}

// TestWith: nodes that are added have the addresses of their names' numbers if they are free, and the prefixes of no other
// node, whatever was added and removed before.
func TestWith(t *testing.T) {
	l, err := Spec{Name: "t", Nodes: 2, Wires: 2, ClusterCIDRs: prefixes("10.42.0.0/16 fd42::/48")}.Layout()
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{
		"node4": "172.18.0.4/24 fd18::4/64 pods 10.42.4.0/24 fd42:0:0:4::/64",
		"edge":  "172.18.0.3/24 fd18::3/64 pods 10.42.3.0/24 fd42:0:0:3::/64",
		"node3": "172.18.0.5/24 fd18::5/64 pods 10.42.5.0/24 fd42:0:0:5::/64", // edge has the number
	}
	for _, name := range []string{"node4", "edge", "node3"} {
		if l, err = l.With(name); err != nil {
			t.Fatal(err)
		}
		n := l.Nodes[len(l.Nodes)-1]
		if got := text(n.Addrs[0]) + " pods " + text(n.PodCIDRs); n.Name != name || got != want[name] {
			t.Errorf("%s has %s, want %s", name, got, want[name])
		}
	}
	if l = l.Without("edge"); l.Has("edge") || len(l.Nodes) != 4 {
		t.Errorf("without edge: %+v", l.Nodes)
	}
}

// TestWithDoesNotOverlap: the prefixes of nodes never overlap while nodes are added and removed.
func TestWithDoesNotOverlap(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		bits := rapid.IntRange(16, 27).Draw(t, "bits")
		l, err := Spec{
			Name: "t", Nodes: rapid.IntRange(1, 5).Draw(t, "nodes"), Wires: 1,
			ClusterCIDRs: []netip.Prefix{netip.PrefixFrom(netip.MustParseAddr("10.128.0.0"), bits)},
		}.Layout()
		if err != nil {
			return // too small
		}
		for step := range 30 {
			if len(l.Nodes) > 1 && rapid.Bool().Draw(t, "remove") {
				l = l.Without(l.Nodes[rapid.IntRange(0, len(l.Nodes)-1).Draw(t, "which")].Name)
				continue
			}
			next, err := l.With("n" + strconv.Itoa(step))
			if err != nil {
				continue
			}
			l = next
			last := l.Nodes[len(l.Nodes)-1]
			for _, n := range l.Nodes[:len(l.Nodes)-1] {
				if n.PodCIDRs[0].Overlaps(last.PodCIDRs[0]) || n.Addrs[0][0] == last.Addrs[0][0] || !l.Spec.ClusterCIDRs[0].Contains(last.PodCIDRs[0].Addr()) {
					t.Fatalf("nodes %+v and %+v", n, last)
				}
			}
		}
	})
}
