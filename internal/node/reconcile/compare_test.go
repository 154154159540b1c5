// SPDX-License-Identifier: Apache-2.0

package reconcile_test

import (
	"strings"
	"testing"

	"github.com/weft-net/weft/internal/nettest"
	"github.com/weft-net/weft/internal/node/reconcile"
	"github.com/weft-net/weft/internal/plan/mesh"
)

// Compare reports whose things are missing or other, and nothing when all is well.
func TestCompare(t *testing.T) {
	nettest.Need(t, "vxlan")
	c := newMesh(t, mesh.Config{Backend: "vxlan"})
	m := c.nodes[0]
	within(t, soon, "a mesh in force", func() bool { return len(m.reconciler.Status().Topology.Peers) == 2 })
	m.stop()
	topology := m.reconciler.Status().Topology
	broken, err := reconcile.Compare(t.Context(), m.node, topology)
	if err != nil || len(broken) > 0 {
		t.Fatalf("before anything was done: %v %v", broken, err)
	}
	ip(t, m.node, "route del 10.244.2.0/24", "link set flannel.1 mtu 1300")
	nettest.Run(t, m.node, "bridge", "fdb", "replace", topology.Peers[1].Fragment().Host.FDBs[0].MAC.String(), "dev",
		"flannel.1", "dst", "192.168.0.77", "self", "permanent")
	if broken, err = reconcile.Compare(t.Context(), m.node, topology); err != nil {
		t.Fatal(err)
	}
	for _, want := range []struct{ owner, says string }{
		{"mesh/peer/n2", "route 10.244.2.0/24 via 10.244.2.0 dev flannel.1"},
		{"mesh/peer/n3", "dst 192.168.0.77"},
		{"mesh/node", "mtu 1300"},
	} {
		found := false
		for _, b := range broken {
			found = found || b.Owner == want.owner && strings.Contains(b.String(), want.says)
		}
		if !found {
			t.Errorf("%s: %q is not told: %v", want.owner, want.says, broken)
		}
	}
	if len(broken) != 3 {
		t.Errorf("%d differences: %v", len(broken), broken)
	}
}

// A join, a leave and a new address cost the same requests in a large mesh as in a small one, and bring no second pass.
func TestJoinIsCheap(t *testing.T) {
	nettest.Need(t, "vxlan")
	costs, sizes := map[int][]int{}, map[int][]int{}
	for _, peers := range []int{5, 500} {
		b := newLarge(t)
		b.pass(peers)
		for _, to := range []int{peers + 1, peers} {
			messages, bytes := b.pass(to)
			costs[peers], sizes[peers] = append(costs[peers], messages), append(sizes[peers], bytes)
		}
	}
	for i, op := range []string{"join", "leave"} {
		// The kernel assigns links addresses of its own meanwhile: an answer more or less.
		const few = 5
		if small, large := costs[5][i], costs[500][i]; large > small+few || large > 40 {
			t.Errorf("a %s costs %d messages among 500 peers, %d among 5", op, large, small)
		}
		if small, large := sizes[5][i], sizes[500][i]; large > small+100 || large > 2000 {
			t.Errorf("a %s costs %d bytes of nft among 500 peers, %d among 5", op, large, small)
		}
	}
}
