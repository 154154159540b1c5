// SPDX-License-Identifier: Apache-2.0

package reconcile_test

import (
	"strings"
	"testing"
	"time"

	"github.com/weft-net/weft/internal/nettest"
	"github.com/weft-net/weft/internal/reconcile"
	"github.com/weft-net/weft/internal/store"
)

func TestUnderlayComesLateAndMoves(t *testing.T) {
	c := newCluster(t)
	n1 := c.nodes[0]
	within(t, 3*time.Second, "routes to all", func() bool { return strings.Count(n1.routes(t), " via ") == 4 })
	ip(t, n1.node, "addr del 192.168.0.1/24 dev eth0")
	within(t, 2*time.Second, "problem told, IPv4 routes gone", func() bool {
		s, err := reconcile.ReadStatus(n1.state)
		return err == nil && strings.Contains(s.Topology.Text(), "no link holds its own address 192.168.0.1") && strings.Count(n1.routes(t), " via ") == 2
	})
	ip(t, n1.node, "addr add 192.168.0.1/24 dev eth0")
	within(t, 2*time.Second, "routes back with the address", func() bool { return strings.Count(n1.routes(t), " via ") == 4 })

	// Both addresses go to another link.
	ip(t, n1.node, "link add eth9 type veth peer name nowhere", "link set nowhere up", "link set eth9 up",
		"addr del 192.168.0.1/24 dev eth0", "addr del fd00::1/64 dev eth0", "addr add 192.168.0.1/24 dev eth9", "addr add fd00::1/64 dev eth9 nodad")
	within(t, 2*time.Second, "routes over the new link and none over the old", func() bool {
		return strings.Count(n1.routes(t), " dev eth9") == 4 && !strings.Contains(n1.routes(t), "eth0")
	})
}

// TestQuiet: what does not concern the mesh makes no work, and a pass over an unharmed kernel writes nothing.
func TestQuiet(t *testing.T) {
	c := newCluster(t)
	n1 := c.nodes[0]
	within(t, 3*time.Second, "routes to all", func() bool { return strings.Count(n1.routes(t), " via ") == 4 })
	time.Sleep(600 * time.Millisecond) // the pass that follows upon our own writes
	before := n1.conn.Writes()
	status := n1.keeper.Status()
	for range 20 { // pods come and go
		ip(t, n1.node, "link add weft0 type veth peer name weft1", "link set weft0 up", "addr add 169.254.9.9/32 dev weft0", "route add 10.244.1.9 dev weft0 proto 119",
			"link del weft0")
	}
	if _, err := c.store.Modify(t.Context(), store.NodeKey("n2"), store.Annotate(map[string]string{"some": "thing"})); err != nil {
		t.Fatal(err)
	}
	time.Sleep(600 * time.Millisecond)
	if n := n1.conn.Writes() - before; n != 0 {
		t.Errorf("%d writes while nothing of the mesh changed", n)
	}
	if now := n1.keeper.Status(); now.Time != status.Time || now.Error != "" {
		t.Errorf("status moved on: %v, then %v %s", status.Time, now.Time, now.Error)
	}
	nettest.Run(t, n1.node, "sysctl", "-qw", "net.ipv4.ip_forward=0")
	ip(t, n1.node, "route del 10.244.2.0/24")
	within(t, time.Second, "forwarding back with the next pass", func() bool {
		return strings.HasSuffix(strings.TrimSpace(nettest.Run(t, n1.node, "sysctl", "net.ipv4.ip_forward")), "= 1")
	})
}
