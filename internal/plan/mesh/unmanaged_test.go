// SPDX-License-Identifier: Apache-2.0

package mesh_test

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/plan/mesh"
)

// brings returns the node with unmanaged addresses: "address pod sequence".
func brings(n model.Node, all ...string) model.Node {
	for _, text := range all {
		words := strings.Fields(text)
		n.Unmanaged = append(n.Unmanaged, model.UnmanagedAddress{
			Addr: netip.MustParseAddr(words[0]), Pod: words[1], Sequence: len(words[2]) - 1,
		})
	}
	return n
}

// Unmanaged addresses have a route each, with every backend, and are omitted if they belong to something else: to the
// cluster's own prefixes, to a node, to a pod that started later.
func TestUnmanaged(t *testing.T) {
	permitted := []netip.Prefix{
		netip.MustParsePrefix("172.16.0.0/16"), netip.MustParsePrefix("fd16::/64"), netip.MustParsePrefix("10.0.0.0/8"),
		netip.MustParsePrefix("192.168.0.0/16"),
	}
	nodes := fourNodes()
	nodes[0] = brings(nodes[0], "172.16.0.1 shop/own 0")
	nodes[1] = brings(nodes[1], "172.16.0.2 shop/b 0", "fd16::2 shop/b 0", "172.16.0.9 shop/first 0",
		"10.1.0.70 shop/pooled 0", "192.168.0.3 shop/node 0", "10.2.1.7 shop/prefixed 0", "172.17.0.1 shop/outside 0")
	nodes[2] = brings(nodes[2], "172.16.0.9 shop/second 00", "172.16.0.8 shop/tie 0")
	nodes[3] = brings(nodes[3], "172.16.0.8 shop/tie 0")
	nodes[3].PodCIDRs = []netip.Prefix{netip.MustParsePrefix("10.2.1.0/24")}
	for _, c := range []struct {
		name  string
		cfg   mesh.Config
		pools []model.AddressPool
		via   map[string]string // routed address: node
		odd   []string
	}{
		{
			"pools",
			mesh.Config{Pools: true, Backend: "vxlan"},
			[]model.AddressPool{pool("one", "10.1.0.0/16", "none", "nat")},
			map[string]string{"172.16.0.2/32": "b", "fd16::2/128": "b", "172.16.0.9/32": "c", "172.16.0.8/32": "c"},
			[]string{"10.1.0.70 of pod shop/pooled on node b is in a pool"},
		},
		{
			"prefixes",
			mesh.Config{Masquerade: []netip.Prefix{netip.MustParsePrefix("10.1.0.0/16")}, Backend: "vxlan"},
			nil,
			map[string]string{"172.16.0.2/32": "b", "fd16::2/128": "b", "172.16.0.9/32": "c", "172.16.0.8/32": "c"},
			[]string{"10.1.0.70 of pod shop/pooled on node b is in the cluster's network"},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.cfg.Unmanaged = permitted
			topo := planAs(t, c.cfg, &model.Cluster{Self: "a", Nodes: nodes, Pools: c.pools}, poolLinks()...)
			got := map[string]string{}
			for _, p := range topo.Peers {
				for _, r := range p.Fragment().Host.Routes {
					if r.Dst.IsSingleIP() {
						got[r.Dst.String()] = p.Name
					}
				}
			}
			for dst, node := range c.via {
				if got[dst] != node {
					t.Errorf("%s leads to %q, want %s", dst, got[dst], node)
				}
			}
			if len(got) != len(c.via) {
				t.Errorf("%v, want %v", got, c.via)
			}
			for _, want := range append(c.odd,
				"192.168.0.3 of pod shop/node on node b is an address of node c",
				"10.2.1.7 of pod shop/prefixed on node b is in the podCIDR of node far",
				"172.16.0.9 is that of pod shop/second on node c and of pod shop/first on node b: packets go to the former",
				"172.16.0.8 is that of pod shop/tie on node c and of pod shop/tie on node far: packets go to the former") {
				if !slices.ContainsFunc(topo.Problems, func(p mesh.Problem) bool { return strings.Contains(p.Message, want) }) {
					t.Errorf("no problem says %q: %v", want, topo.Problems)
				}
			}
			for _, table := range topo.Node.Host.Tables {
				for _, s := range table.Sets {
					if s.Name != "cluster4" {
						continue
					}
					var all []string
					for _, e := range s.Elements {
						all = append(all, e.Key...)
					}
					for _, want := range []string{"172.16.0.1/32", "172.16.0.2/32", "172.16.0.8/32", "172.16.0.9/32"} {
						if !slices.Contains(all, want) {
							t.Errorf("%s is hidden from: %v", want, all)
						}
					}
				}
			}
			for _, r := range topo.Node.Host.Routes {
				if r.Dst == netip.MustParsePrefix("172.16.0.1/32") {
					t.Errorf("what leads to this node's own pod is the pod's: %v", r)
				}
			}
			c.cfg.Unmanaged = nil
			if again := planAs(t, c.cfg, &model.Cluster{Self: "a", Nodes: nodes, Pools: c.pools},
				poolLinks()...); strings.Contains(again.Text(), "172.16.0") {
				t.Errorf("nobody permitted it: %s", again.Text())
			}
		})
	}
}
