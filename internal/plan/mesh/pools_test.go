// SPDX-License-Identifier: Apache-2.0

package mesh_test

import (
	"encoding/json"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/weft-net/weft/internal/kernel/nft/lang"
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/plan/mesh"
	"github.com/weft-net/weft/internal/state"
)

// pool returns a pool of the cluster's network; words are regions, "nat", "vxlan", "ipip", "none", "CrossSubnet".
func pool(name string, words ...string) model.AddressPool {
	p := model.AddressPool{Name: name, AssignmentMode: model.AssignAutomatic}
	for _, w := range words {
		switch {
		case strings.Contains(w, "/"):
			p.Regions = append(p.Regions, model.AddressRegion{CIDR: netip.MustParsePrefix(w)})
		case w == "nat":
			p.NATOutgoing = true
		case w == string(model.EncapsulateCrossSubnet):
			p.Encapsulation.Mode = model.EncapsulateCrossSubnet
		default:
			p.Encapsulation.Kind = model.EncapsulationKind(w)
		}
	}
	return p
}

// block returns a block; lent are "address borrower" of its lent addresses.
func block(pool, cidr, node string, lent ...string) model.AddressBlock {
	b := model.AddressBlock{Pool: pool, CIDR: netip.MustParsePrefix(cidr), Node: node, Claim: "1"}
	for _, w := range lent {
		addr, holder, _ := strings.Cut(w, " ")
		if b.Lent == nil {
			b.Lent = map[netip.Addr]string{}
		}
		b.Lent[netip.MustParseAddr(addr)] = holder
	}
	return b
}

// fourNodes are a, b and c on one network, and far behind a router.
func fourNodes() []model.Node {
	return []model.Node{
		node("a", "192.168.0.1", "fd00::1"), node("b", "192.168.0.2", "fd00::2"), node("c", "192.168.0.3", "fd00::3"),
		node("far", "192.168.9.4", "fd09::4"),
	}
}

func poolLinks() []string { return []string{"eth0 192.168.0.1/24", "eth0 fd00::1/64"} }

func TestPoolsGolden(t *testing.T) {
	own := []netip.Addr{netip.MustParseAddr("10.1.0.0"), netip.MustParseAddr("fd01::")}
	blocks := []model.AddressBlock{
		block("one", "10.1.0.0/26", "a"),
		block("one", "10.1.0.64/26", "b", "10.1.0.70 c/7", "10.1.0.71 a/8", "10.1.0.72 ", "10.1.0.73 b/9"),
		block("one", "10.1.0.128/26", "b"), block("one", "10.1.0.192/26", "far"),
		block("one", "10.1.1.0/26", "a", "10.1.1.9 far/3"),
	}
	six := []model.AddressBlock{
		block("six", "fd01::/122", "a"), block("six", "fd01::40/122", "b"), block("six", "fd01::80/122", "far"),
	}
	for _, g := range []struct {
		name   string
		pools  []model.AddressPool
		blocks []model.AddressBlock
		how    mesh.Config
	}{
		{"none", []model.AddressPool{pool("one", "10.1.0.0/16", "none")}, blocks, mesh.Config{}},
		{
			"vxlan",
			[]model.AddressPool{pool("one", "10.1.0.0/16", "vxlan"), pool("six", "fd01::/64", "vxlan")},
			append(slices.Clone(blocks), six...),
			mesh.Config{TunnelAddrs: own},
		},
		{
			"vxlan-cross", []model.AddressPool{
				pool("one", "10.1.0.0/16", "vxlan", "CrossSubnet"), pool("six", "fd01::/64", "vxlan", "CrossSubnet"),
			}, append(slices.Clone(blocks), six...), mesh.Config{TunnelAddrs: own},
		},
		{"ipip", []model.AddressPool{pool("one", "10.1.0.0/16", "ipip")}, blocks, mesh.Config{TunnelAddrs: own}},
		{
			"ipip-cross",
			[]model.AddressPool{pool("one", "10.1.0.0/16", "ipip", "CrossSubnet")},
			blocks,
			mesh.Config{TunnelAddrs: own},
		},
		{"backend", []model.AddressPool{pool("one", "10.1.0.0/16")}, blocks, mesh.Config{Backend: "vxlan"}},
		{
			"mixed",
			[]model.AddressPool{
				pool("one", "10.1.0.0/16", "vxlan", "nat"), pool("two", "10.2.0.0/24", "ipip", "CrossSubnet"),
				pool("three", "10.3.0.0/24", "none", "nat"), pool("six", "fd01::/64", "ipip"),
			},
			append(
				append(slices.Clone(blocks), block("two", "10.2.0.0/26", "far"), block("two", "10.2.0.64/26", "b"),
					block("three", "10.3.0.0/28", "b"), block("three", "10.3.0.16/28", "far")), six...,
			),
			mesh.Config{TunnelAddrs: own, NoMasquerade: []netip.Prefix{netip.MustParsePrefix("172.16.0.0/12")}},
		},
		{
			"wrong",
			[]model.AddressPool{
				pool("one", "10.1.0.0/16", "none"), pool("same", "10.1.0.0/16", "none"), pool("near", "192.168.0.0/24", "none"),
				{Name: "other", Regions: []model.AddressRegion{{CIDR: netip.MustParsePrefix("10.9.0.0/16")}}},
			},
			[]model.AddressBlock{
				block("one", "10.1.0.0/26", "b"), block("same", "10.1.0.32/27", "c"), block("same", "10.1.0.64/27", "c"),
				block("one", "10.1.0.64/26", "c"),
				block("near", "192.168.0.0/26", "b"), block("one", "10.2.0.0/26", "b"), block("one", "10.1.2.0/26", "gone"),
				block("other", "10.9.0.0/26", "b"),
			},
			mesh.Config{},
		},
	} {
		t.Run(g.name, func(t *testing.T) {
			g.how.Pools = true
			topo := planAs(t, g.how, &model.Cluster{Self: "a", Nodes: fourNodes(), Pools: g.pools, Blocks: g.blocks},
				poolLinks()...)
			text := topo.Text()
			for _, table := range topo.Node.Host.Tables {
				rules, err := lang.Text(table)
				if err != nil {
					t.Fatal(err)
				}
				text += rules
			}
			golden(t, "pools-"+g.name+".txt", text)
			js, err := json.Marshal(topo)
			if err != nil {
				t.Fatal(err)
			}
			var back mesh.Topology
			if err := json.Unmarshal(js, &back); err != nil || back.Text() != topo.Text() {
				t.Errorf("read back from JSON (%v):\n%s", err, back.Text())
			}
		})
	}
}

// Without Config.Pools, pools belong to other networks.
func TestPoolsDisabled(t *testing.T) {
	c := &model.Cluster{
		Self: "a", Nodes: []model.Node{node("a", "192.168.0.1", "10.1.0.0/24"), node("b", "192.168.0.2", "10.1.1.0/24")},
		Pools:  []model.AddressPool{pool("one", "10.1.0.0/16", "vxlan", "nat")},
		Blocks: []model.AddressBlock{block("one", "10.1.5.0/26", "b")},
	}
	if topo := plan(t, c, poolLinks()...); len(topo.Node.Host.Links) > 0 || len(topo.Node.Host.Tables) != 1 ||
		len(topo.Peers[0].Fragment().Host.Routes) != 1 || len(topo.PodCIDRs) != 1 {
		t.Errorf("pools count without being asked:\n%s", topo.Text())
	}
	topo := planAs(t, mesh.Config{Pools: true}, c, poolLinks()...)
	routes := topo.Peers[0].Fragment().Host.Routes
	if len(topo.PodCIDRs) != 0 || len(routes) != 1 || routes[0].Dst != netip.MustParsePrefix("10.1.5.0/26") {
		t.Errorf("the nodes' prefixes in a pool are not left out:\n%s", topo.Text())
	}
	c.Nodes[1].PodCIDRs = []netip.Prefix{netip.MustParsePrefix("10.5.1.0/24")}
	if topo := planAs(t, mesh.Config{Pools: true}, c, poolLinks()...); len(topo.Peers[0].Fragment().Host.Routes) != 2 {
		t.Errorf("a prefix outside of all pools is still routed:\n%s", topo.Text())
	}
}

// No two routes of a node share a metric, and another block does not change the others' metrics.
func TestPoolsMetrics(t *testing.T) {
	c := &model.Cluster{Self: "a", Nodes: fourNodes(), Pools: []model.AddressPool{pool("one", "10.0.0.0/8", "none")}}
	for i := range 4000 {
		cidr := netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(i >> 8), byte(i), 0}), 26)
		c.Blocks = append(c.Blocks, model.AddressBlock{Pool: "one", CIDR: cidr, Node: c.Nodes[i%3].Name, Claim: "1"})
	}
	all := func() map[netip.Prefix]state.Route {
		topo := planAs(t, mesh.Config{Pools: true}, c, poolLinks()...)
		out, taken := map[netip.Prefix]state.Route{}, map[uint32]bool{}
		for _, f := range topo.Fragments() {
			for _, r := range f.Host.Routes {
				if taken[r.Metric] || !mesh.Owns(r) {
					t.Fatalf("%s: its metric is another one's, or none of the mesh", r)
				}
				taken[r.Metric], out[r.Dst] = true, r
			}
		}
		return out
	}
	before := all()
	c.Blocks = append(c.Blocks, block("one", "10.200.0.0/26", "b"))
	after := all()
	for dst, r := range before {
		if after[dst].String() != r.String() {
			t.Errorf("%s became %s", r, after[dst])
		}
	}
	if len(after) != len(before)+1 {
		t.Errorf("%d routes, then %d", len(before), len(after))
	}
}

// On a bridge of an earlier configuration the node answers for routed pods.
func TestBridgePods(t *testing.T) {
	c := &model.Cluster{
		Self: "a", Nodes: []model.Node{node("a", "192.168.0.1", "10.1.0.0/24", "fd01::/64"), node("b", "192.168.0.2")},
	}
	how := mesh.Config{BridgePods: true, RoutedAddrs: []netip.Addr{netip.MustParseAddr("fd01::5"), netip.MustParseAddr("fd02::5")}}
	at := func(a string) state.Query { return state.Query{Space: state.Host, LinkOf: netip.MustParseAddr(a)} }
	answers := state.Answers{
		at("192.168.0.1"): {
			Found: true, Link: state.Link{Name: "eth0", MTU: 1500},
			Addrs: []state.Addr{{Prefix: netip.MustParsePrefix("192.168.0.1/24")}},
		},
		at("10.1.0.1"): {Found: true, Link: state.Link{Name: "cni0", Kind: state.Bridge}},
		at("fd01::1"):  {Found: true, Link: state.Link{Name: "cni0", Kind: state.Bridge}},
	}
	for _, q := range []string{"10.1.0.1", "fd01::1"} {
		if !slices.Contains(mesh.Observe(c, how), at(q)) {
			t.Errorf("nobody asks for %s", q)
		}
	}
	topo, err := mesh.Plan(c, how, answers)
	text := topo.Text()
	for _, want := range []string{
		"net/ipv4/conf/cni0/proxy_arp = 1", "net/ipv6/conf/cni0/proxy_ndp = 1", "neigh proxy fd01::5 dev cni0",
	} {
		if err != nil || !strings.Contains(text, want) {
			t.Errorf("%q is missing (%v):\n%s", want, err, text)
		}
	}
	if strings.Contains(text, "fd02::5") || len(topo.BridgedFamilies) != 2 {
		t.Errorf("bridged %v:\n%s", topo.BridgedFamilies, text)
	}
	answers[at("10.1.0.1")] = state.Answer{Found: true, Link: state.Link{Name: "veth1", Kind: state.Veth}}
	delete(answers, at("fd01::1"))
	if topo, err := mesh.Plan(c, how, answers); err != nil || strings.Contains(topo.Text(), "proxy") ||
		len(topo.BridgedFamilies) > 0 {
		t.Errorf("a link that is no bridge (%v):\n%s", err, topo.Text())
	}
}

// A block whose region was moved to another pool uses that pool's encapsulation, without a problem; one that is in no
// pool any more is omitted.
func TestMovedRegion(t *testing.T) {
	c := &model.Cluster{
		Self: "a", Nodes: fourNodes(), Pools: []model.AddressPool{
			pool("new", "10.1.0.0/16", "none"), pool("old", "10.2.0.0/16", "vxlan"),
		},
		Blocks: []model.AddressBlock{block("old", "10.1.0.0/26", "b"), block("old", "10.3.0.0/26", "b")},
	}
	topo := planAs(t, mesh.Config{Pools: true}, c, poolLinks()...)
	var got []string
	for _, r := range topo.Peers[0].Fragment().Host.Routes {
		got = append(got, r.Dst.String()+" "+r.Link)
	}
	if !slices.Equal(got, []string{"10.1.0.0/26 eth0"}) {
		t.Errorf("routes %v:\n%s", got, topo.Text())
	}
	if len(topo.Problems) != 1 ||
		!strings.Contains(topo.Problems[0].Message, "block 10.3.0.0/26 of node b is outside of its pool old") {
		t.Errorf("problems %v", topo.Problems)
	}
}
