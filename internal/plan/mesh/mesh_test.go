// SPDX-License-Identifier: Apache-2.0

package mesh_test

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/plan/mesh"
	"github.com/weft-net/weft/internal/state"
)

var update = flag.Bool("update", false, "write the golden files anew")

// node returns a node with the given addresses and prefixes (with a slash).
func node(name string, words ...string) model.Node {
	n := model.Node{Name: name}
	for _, w := range words {
		if strings.Contains(w, "/") {
			n.PodCIDRs = append(n.PodCIDRs, netip.MustParsePrefix(w))
		} else {
			n.Addrs = append(n.Addrs, netip.MustParseAddr(w))
		}
	}
	return n
}

// plan plans with a kernel whose links have the given addresses ("eth0 192.168.0.1/24").
func plan(t testing.TB, c *model.Cluster, links ...string) mesh.Topology {
	t.Helper()
	return planAs(t, mesh.Config{}, c, links...)
}

func planAs(t testing.TB, how mesh.Config, c *model.Cluster, links ...string) mesh.Topology {
	t.Helper()
	answers := state.Answers{}
	for _, q := range mesh.Observe(c, how) {
		for _, l := range links {
			link, prefix, _ := strings.Cut(l, " ")
			if p := netip.MustParsePrefix(prefix); p.Addr() == q.LinkOf {
				answers[q] = state.Answer{
					Found: true, Link: state.Link{Name: link, MTU: 1500}, Addrs: []state.Addr{{Link: link, Prefix: p}},
				}
			}
		}
	}
	topo, err := mesh.Plan(c, how, answers)
	if err != nil {
		t.Fatal(err)
	}
	return topo
}

// A node of BGP that is alone is a router, which needs no podCIDR.
func TestRouterWithoutPodCIDR(t *testing.T) {
	c := &model.Cluster{Self: "a", Nodes: []model.Node{node("a", "192.168.0.1")}}
	for backend, want := range map[string]int{mesh.BackendBGP: 0, "host-gw": 1} {
		if top := planAs(t, mesh.Config{Backend: backend}, c, "eth0 192.168.0.1/24"); len(top.Problems) != want {
			t.Errorf("%s: %v, want %d problems", backend, top.Problems, want)
		}
	}
}

func TestGolden(t *testing.T) {
	a := node("a", "192.168.0.1", "fd00::1", "10.244.1.0/24", "fd00:244:1::/64")
	b := node("b", "192.168.0.2", "fd00::2", "10.244.2.0/24", "fd00:244:2::/64")
	c := node("c", "192.168.0.3", "fd00::3", "10.244.3.0/24", "fd00:244:3::/64")
	links := []string{"eth0 192.168.0.1/24", "eth1 fd00::1/64"}
	vxlan := mesh.Config{Backend: "vxlan", VXLAN: mesh.VXLAN{VNI: 7, DirectRouting: true}}
	for _, g := range []struct {
		name  string
		nodes []model.Node
		links []string
		how   mesh.Config
	}{
		{"three-nodes", []model.Node{c, a, b}, links, mesh.Config{}},
		{"alone", []model.Node{a}, links, mesh.Config{}},
		{
			"one-family", []model.Node{
				a, node("b", "192.168.0.2", "10.244.2.0/24"), node("c", "fd00::3", "10.244.3.0/24", "fd00:244:3::/64"),
			}, links, mesh.Config{},
		},
		{"not-on-link", []model.Node{a, node("far", "192.168.9.2", "10.244.2.0/24")}, links, mesh.Config{}},
		{"no-podcidr", []model.Node{node("a", "192.168.0.1"), node("b", "192.168.0.2")}, links, mesh.Config{}},
		{
			"overlap", []model.Node{
				a, b, node("c", "192.168.0.3", "10.244.2.128/25"), node("d", "192.168.0.4", "10.244.1.0/25"),
				node("e", "192.168.0.5", "10.244.5.0/24"),
			}, links, mesh.Config{},
		},
		{
			"swallowed", []model.Node{
				a, node("b", "192.168.0.2", "192.168.0.0/16"), node("c", "192.168.0.3", "10.244.3.0/24", "127.1.0.0/24"),
			}, links, mesh.Config{},
		},
		{
			"same-address",
			[]model.Node{a, b, node("c", "192.168.0.2", "fd00::3", "10.244.3.0/24", "fd00:244:3::/64")},
			links,
			mesh.Config{},
		},
		{"no-underlay", []model.Node{a, b}, []string{"eth0 192.168.0.1/24"}, mesh.Config{}},
		{"several-cidrs", []model.Node{a, node("b", "192.168.0.2", "10.244.2.0/24", "10.244.3.0/24")}, links, mesh.Config{}},
		{"vxlan", []model.Node{a, b, c, node("4", "192.168.9.2", "10.244.4.0/24")}, links, mesh.Config{Backend: "vxlan"}},
		{
			"vxlan-all",
			[]model.Node{
				publishes(a, "vxlan", `{"VNI":9,"VtepMAC":"12:c6:65:89:b4:e1"}`, "203.0.113.1"),
				publishes(b, "host-gw", "", "192.168.0.2"), c,
			},
			links,
			mesh.Config{
				Backend: "vxlan", VXLAN: mesh.VXLAN{VNI: 9, Port: 4789, GBP: true, Learning: true, MTU: 1400}, Blackhole: true,
				Masquerade:   []netip.Prefix{netip.MustParsePrefix("10.244.0.0/16")},
				NoMasquerade: []netip.Prefix{netip.MustParsePrefix("10.9.0.0/16"), netip.MustParsePrefix("10.0.0.0/8")},
			},
		},
		{
			"vxlan-direct",
			[]model.Node{a, b, node("far", "192.168.9.2", "fd09::2", "10.244.9.0/24", "fd00:244:9::/64")},
			links, vxlan,
		},
	} {
		t.Run(g.name, func(t *testing.T) {
			topo := planAs(t, g.how, &model.Cluster{Self: "a", Nodes: g.nodes}, g.links...)
			js, err := json.MarshalIndent(topo, "", "  ")
			if err != nil {
				t.Fatal(err)
			}
			golden(t, g.name+".txt", topo.Text())
			golden(t, g.name+".json", string(js)+"\n")
			var back mesh.Topology
			if err := json.Unmarshal(js, &back); err != nil || back.Text() != topo.Text() {
				t.Errorf("read back from JSON (%v):\n%s", err, back.Text())
			}
		})
	}
}

func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := errors.Join(os.MkdirAll("testdata", 0o755), os.WriteFile(path, []byte(got), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(string(want), got); d != "" {
		t.Errorf("%s (-want +got), write anew with -update:\n%s", name, d)
	}
}

func TestRefused(t *testing.T) {
	c := &model.Cluster{Self: "me", Nodes: []model.Node{node("a")}}
	var fault *model.Error
	if _, err := mesh.Plan(c, mesh.Config{}, nil); !errors.As(err, &fault) || fault.Hint == "" {
		t.Errorf("self is not in the cluster: %v", err)
	}
	c.Self = "a"
	if _, err := mesh.Plan(c, mesh.Config{Backend: "carrier-pigeon"}, nil); !errors.As(err, &fault) ||
		!strings.Contains(fault.Hint, "host-gw") {
		t.Errorf("unknown backend: %v", err)
	}
}

// clusters generates small clusters in which contradictions are likely.
func clusters(t *rapid.T) *model.Cluster {
	c := &model.Cluster{Self: "n0"}
	for i := range rapid.IntRange(1, 8).Draw(t, "nodes") {
		n := model.Node{Name: fmt.Sprintf("n%d", i)}
		if i == 0 || rapid.IntRange(0, 9).Draw(t, "has4") > 0 {
			n.Addrs = append(
				n.Addrs,
				netip.AddrFrom4([4]byte{
					192, 168, byte(rapid.SampledFrom([]int{0, 0, 0, 0, 9}).Draw(t, "net")),
					byte(rapid.IntRange(1, 20).Draw(t, "host")),
				}),
			)
		}
		if rapid.Bool().Draw(t, "has6") {
			n.Addrs = append(n.Addrs, netip.MustParseAddr(fmt.Sprintf("fd00::%d", rapid.IntRange(1, 20).Draw(t, "host6"))))
		}
		for range rapid.IntRange(0, 2).Draw(t, "cidrs") {
			bits := rapid.SampledFrom([]int{24, 24, 24, 23, 25}).Draw(t, "bits")
			p := netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 244, byte(rapid.IntRange(0, 30).Draw(t, "cidr")), 0}), bits)
			if rapid.Bool().Draw(t, "six") {
				p = netip.MustParsePrefix(fmt.Sprintf("fd00:244:%d::/64", rapid.IntRange(0, 30).Draw(t, "cidr6")))
			}
			n.PodCIDRs = append(n.PodCIDRs, p.Masked())
		}
		c.Nodes = append(c.Nodes, n)
	}
	return c
}

func links(c *model.Cluster) []string {
	var out []string
	for _, a := range c.Nodes[0].Addrs {
		if a.Is4() {
			out = append(out, "eth0 "+a.String()+"/24")
		} else {
			out = append(out, "eth0 "+a.String()+"/64")
		}
	}
	return out
}

// TestPackets checks each plan's routes: the destination belongs to one node only, and that node is a neighbor whose
// address no other node claims.
func TestPackets(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		c := clusters(r)
		topo := plan(t, c, links(c)...)
		metrics := map[uint32]bool{}
		routed := map[string]bool{}
		for _, f := range topo.Fragments() {
			for _, route := range f.Host.Routes {
				if metrics[route.Metric] || !mesh.Owns(route) {
					r.Errorf("%s: metric is not unique or outside the mesh's range", route)
				}
				metrics[route.Metric] = true
				routed[f.Owner+" "+route.Dst.String()] = true
				claims, holders := 0, 0
				for _, n := range c.Nodes {
					for _, p := range n.PodCIDRs {
						if p.Overlaps(route.Dst) && used(n, p) {
							claims++
							break
						}
					}
					for i, a := range n.Addrs {
						if a == route.Gw && i == firstOf(n, a) {
							holders++
						}
					}
				}
				if claims != 1 || holders != 1 {
					r.Errorf("%s: %d nodes claim its addresses, %d its gateway\n%s", route, claims, holders, topo.Text())
				}
			}
		}
		for _, p := range topo.Peers {
			reported := false
			for _, problem := range topo.Problems {
				reported = reported || strings.Contains(strings.Join(problem.Nodes, " ")+" ", p.Name+" ")
			}
			for _, cidr := range p.PodCIDRs {
				if !routed[p.Fragment().Owner+" "+cidr.String()] && !reported {
					r.Errorf("peer %s: %s is not routed and there is no problem\n%s", p.Name, cidr, topo.Text())
				}
			}
		}
	})
}

func firstOf(n model.Node, a netip.Addr) int {
	for i, b := range n.Addrs {
		if a.Is4() == b.Is4() {
			return i
		}
	}
	return -1
}

func used(n model.Node, p netip.Prefix) bool {
	for _, q := range n.PodCIDRs {
		if q.Addr().Is4() == p.Addr().Is4() {
			return q == p
		}
	}
	return false
}

// The order of nodes does not matter, and a node that joins without a contradiction changes nothing for the others.
func TestOrderAndNewcomers(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		c := clusters(r)
		before := plan(t, c, links(c)...)
		shuffled := &model.Cluster{Self: c.Self, Nodes: rapid.Permutation(c.Nodes).Draw(r, "order")}
		if got := plan(t, shuffled, links(c)...); got.Text() != before.Text() {
			r.Errorf("another order plans\n%s\nwant\n%s", got.Text(), before.Text())
		}
		grown := &model.Cluster{
			Self: c.Self, Nodes: append(append([]model.Node(nil), c.Nodes...), node("z", "192.168.0.77", "10.99.0.0/24")),
		}
		after := plan(t, grown, links(c)...)
		for i, p := range before.Peers {
			if d := cmp.Diff(mesh.Lines(p.Fragment().Host), mesh.Lines(after.Peers[i].Fragment().Host)); d != "" {
				r.Errorf("peer %s changes when z joins:\n%s", p.Name, d)
			}
		}
	})
}

func BenchmarkPlan(b *testing.B) {
	c := &model.Cluster{Self: "n0"}
	for i := range 5000 {
		c.Nodes = append(
			c.Nodes,
			node(fmt.Sprintf("n%d", i), fmt.Sprintf("192.168.%d.%d", i/250, 1+i%250),
				fmt.Sprintf("10.%d.%d.0/24", i/256, i%256)),
		)
	}
	for b.Loop() {
		if topo := plan(b, c, "eth0 192.168.0.1/16"); len(topo.Problems) > 0 {
			b.Fatal(topo.Problems[0])
		}
	}
}
