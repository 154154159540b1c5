// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/weft-net/weft/internal/lab/layout"
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/plan/mesh"
	"github.com/weft-net/weft/internal/state"
)

// TestDiagram draws two nodes with a tunnel; one of them has drift.
func TestDiagram(t *testing.T) {
	prefix, addr := netip.MustParsePrefix, netip.MustParseAddr
	nodes := []model.Node{
		{Name: "node1", Addrs: []netip.Addr{addr("192.168.0.1")}, PodCIDRs: []netip.Prefix{prefix("10.244.1.0/24")}},
		{Name: "node2", Addrs: []netip.Addr{addr("192.168.0.2")}, PodCIDRs: []netip.Prefix{prefix("10.244.2.0/24")}},
	}
	st, meshes := Status{Name: "demo"}, map[string]MeshStatus{}
	for _, n := range nodes {
		st.Nodes = append(st.Nodes, NodeStatus{
			Name: n.Name, Wires: [][]netip.Addr{n.Addrs}, PodCIDRs: n.PodCIDRs, Agent: "running", Sandbox: "running",
		})
		topology, err := mesh.Plan(&model.Cluster{Self: n.Name, Nodes: nodes}, mesh.Config{Backend: "vxlan"},
			state.Answers{{Space: state.Host, LinkOf: n.Addrs[0]}: {
				Found: true, Link: state.Link{Name: "eth0", MTU: 1500},
				Addrs: []state.Addr{{Link: "eth0", Prefix: netip.PrefixFrom(n.Addrs[0], 24)}},
			}})
		if err != nil {
			t.Fatal(err)
		}
		meshes[n.Name] = MeshStatus{Topology: topology}
	}
	two := meshes["node2"]
	two.Drift = []string{"route 10.244.1.0/24 is missing"}
	meshes["node2"] = two
	d := st.Diagram(layout.Layout{Wires: []layout.Wire{{Name: "wire0", Prefixes: []netip.Prefix{prefix("192.168.0.0/24")}}}}, meshes)
	if len(d.Wires) != 2 || !d.Wires[1].Tunnel || d.Wires[1].Name != "vxlan flannel.1" {
		t.Errorf("wires: %+v", d.Wires)
	}
	if d.Nodes[0].Bad || !d.Nodes[1].Bad {
		t.Errorf("bad: %v and %v", d.Nodes[0].Bad, d.Nodes[1].Bad)
	}
	for name, diagram := range map[string]string{"dot": d.DOT(), "svg": d.SVG()} {
		for _, want := range []string{
			"vxlan flannel.1", "MTU 1450", "10.244.1.0", "backend vxlan", "drift: route 10.244.1.0/24 is missing", "dash",
		} {
			if !strings.Contains(diagram, want) {
				t.Errorf("%s lacks %q", name, want)
			}
		}
	}
	if withoutPath := st.Diagram(layout.Layout{Wires: []layout.Wire{{Name: "wire0"}}}, nil); len(withoutPath.Wires) != 1 || withoutPath.Nodes[1].Bad {
		t.Errorf("without meshes: %+v", withoutPath)
	}
}
