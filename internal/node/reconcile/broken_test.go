// SPDX-License-Identifier: Apache-2.0

package reconcile_test

import (
	"strings"
	"testing"

	"github.com/weft-net/weft/internal/cluster/store"
	"github.com/weft-net/weft/internal/nettest"
	"github.com/weft-net/weft/internal/plan/mesh"
)

// TestBroken: the status has the error of the node's own part if its tunnel device cannot be created, or there was no
// plan; not if the last plan stays in force.
func TestBroken(t *testing.T) {
	nettest.Need(t, "vxlan")
	c := newMesh(t, mesh.Config{Backend: "vxlan"})
	n1 := c.nodes[0]
	broken := func() error { return n1.reconciler.Status().Broken }
	within(t, soon, "a pass", func() bool { return len(n1.reconciler.Status().Topology.Peers) == 2 && broken() == nil })

	n1.stop()
	ip(t, n1.node, "link del flannel.1", "link add theirs type vxlan id 1 dstport 8472 dev eth0 nolearning")
	n1.start(c)
	within(t, soon, "the device is refused", func() bool {
		return broken() != nil && strings.Contains(broken().Error(), "flannel.1")
	})
	ip(t, n1.node, "link del theirs")
	within(t, soon, "the device is created", func() bool { return broken() == nil })

	if err := c.store.Delete(t.Context(), store.NodeKey("n1"), ""); err != nil {
		t.Fatal(err)
	}
	within(t, soon, "a plan that fails", func() bool { return n1.reconciler.Status().Error != "" })
	if err := broken(); err != nil {
		t.Errorf("broken while the last plan is in force: %v", err)
	}
	n1.stop()
	n1.start(c)
	within(t, soon, "no plan at all", func() bool { return broken() != nil })
	c.add(1)
	within(t, soon, "a plan", func() bool { return broken() == nil && n1.reconciler.Status().Error == "" })
}
