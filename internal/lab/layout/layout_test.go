// SPDX-License-Identifier: Apache-2.0

package layout

import (
	"errors"
	"net/netip"
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
