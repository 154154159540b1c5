// SPDX-License-Identifier: Apache-2.0

package reconcile_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weft-net/weft/internal/cluster/store"
	"github.com/weft-net/weft/internal/nettest"
	"github.com/weft-net/weft/internal/node/reconcile"
	"github.com/weft-net/weft/internal/plan/mesh"
)

func TestUnderlayComesLateAndMoves(t *testing.T) {
	c := newCluster(t)
	n1 := c.nodes[0]
	within(t, soon, "routes to all", func() bool { return strings.Count(n1.routes(t), " via ") == 4 })
	ip(t, n1.node, "addr del 192.168.0.1/24 dev eth0")
	within(t, soon, "problem told, IPv4 routes gone", func() bool {
		s, err := reconcile.ReadStatus(n1.state)
		return err == nil && strings.Contains(s.Topology.Text(), "no link has its own address 192.168.0.1") &&
			strings.Count(n1.routes(t), " via ") == 2
	})
	ip(t, n1.node, "addr add 192.168.0.1/24 dev eth0")
	within(t, soon, "routes back with the address", func() bool { return strings.Count(n1.routes(t), " via ") == 4 })

	// Both addresses go to another link.
	ip(t, n1.node, "link add eth9 type veth peer name nowhere", "link set nowhere up", "link set eth9 up",
		"addr del 192.168.0.1/24 dev eth0", "addr del fd00::1/64 dev eth0", "addr add 192.168.0.1/24 dev eth9",
		"addr add fd00::1/64 dev eth9 nodad")
	within(t, soon, "routes over the new link and none over the old", func() bool {
		return strings.Count(n1.routes(t), " dev eth9") == 4 && !strings.Contains(n1.routes(t), "eth0")
	})
}

// TestQuiet: what does not concern the mesh makes no work, and a pass over an unharmed kernel writes nothing.
func TestQuiet(t *testing.T) {
	c := newCluster(t)
	n1 := c.nodes[0]
	within(t, soon, "routes to all", func() bool { return strings.Count(n1.routes(t), " via ") == 4 })
	before, status := n1.conn.Writes(), n1.reconciler.Status()
	calm := 0
	within(t, soon, "the passes that follow our own writes are over", func() bool {
		last := status.Time
		time.Sleep(600 * time.Millisecond)
		before, status = n1.conn.Writes(), n1.reconciler.Status()
		if calm++; status.Time != last {
			calm = 0
		}
		return calm == 3
	})
	for range 20 { // pods come and go
		ip(t, n1.node, "link add weft0 type veth peer name weft1", "link set weft0 up", "addr add 169.254.9.9/32 dev weft0",
			"route add 10.244.1.9 dev weft0 proto 119",
			"link del weft0")
	}
	if _, err := c.store.Modify(t.Context(), store.NodeKey("n2"),
		store.Annotate(map[string]string{"some": "thing"})); err != nil {
		t.Fatal(err)
	}
	time.Sleep(600 * time.Millisecond)
	if n := n1.conn.Writes() - before; n != 0 {
		t.Errorf("%d writes while nothing of the mesh changed", n)
	}
	if now := n1.reconciler.Status(); now.Time != status.Time || now.Error != "" {
		t.Errorf("status moved on: %v, then %v %s", status.Time, now.Time, now.Error)
	}
	nettest.Run(t, n1.node, "sysctl", "-qw", "net.ipv4.ip_forward=0")
	ip(t, n1.node, "route del 10.244.2.0/24")
	within(t, soon, "forwarding back with the next pass", func() bool {
		return strings.HasSuffix(strings.TrimSpace(nettest.Run(t, n1.node, "sysctl", "net.ipv4.ip_forward")), "= 1")
	})
}

// TestTunnelsFollowUnderlay: tunnels follow the underlay's MTU and the node's address without being re-created.
func TestTunnelsFollowUnderlay(t *testing.T) {
	nettest.Need(t, "vxlan")
	c := newMesh(t, mesh.Config{Backend: "vxlan"})
	n1, n2 := c.nodes[0], c.nodes[1]
	c.allReach(soon)
	check := func() string { return nettest.Run(t, n1.node, "ip", "-d", "-o", "link", "show", "flannel.1") }
	index := strings.Fields(check())[0]
	settled(n1)
	ip(t, n1.node, "link set eth0 mtu 1400")
	within(t, soon, "less fits", func() bool {
		return strings.Contains(check(), "mtu 1350") &&
			strings.Contains(nettest.Run(t, n1.node, "ip", "link", "show", "flannel-v6.1"), "mtu 1330")
	})
	settled(n1)
	ip(t, n1.node, "addr add 192.168.0.11/24 dev eth0", "addr del 192.168.0.1/24 dev eth0",
		"addr add 192.168.0.11/24 dev eth0")
	ip(t, n1.node, "-4 neigh flush dev eth0 nud permanent")
	_, err := c.store.Modify(t.Context(), store.NodeKey("n1"), func(fields map[string]any) error {
		fields["status"] = map[string]any{"addresses": []any{
			map[string]any{"type": "InternalIP", "address": "192.168.0.11"},
			map[string]any{"type": "InternalIP", "address": "fd00::1"},
		}}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for i := 2; i <= 3; i++ {
		neigh(t, n1.node, "eth0", i, fmt.Sprintf("192.168.0.%d", i))
		neigh(t, c.nodes[i-1].node, "eth0", 1, "192.168.0.11")
	}
	within(t, soon, "the new address", func() bool {
		return strings.Contains(check(), "local 192.168.0.11 ") && strings.Contains(n2.tunnels(t), "dst 192.168.0.11 ") &&
			!strings.Contains(n2.tunnels(t), "dst 192.168.0.1 ")
	})
	c.allReach(soon)
	if now := strings.Fields(check())[0]; now != index {
		t.Errorf("the device was made anew: index %s, was %s", now, index)
	}
}

// An address that no link holds for a moment takes nothing down: tunnels and routes stay, and are right when it is
// back.
func TestUnderlayLost(t *testing.T) {
	nettest.Need(t, "vxlan")
	c := newMesh(t, mesh.Config{Backend: "vxlan"})
	n1 := c.nodes[0]
	c.allReach(soon)
	check := func() string {
		return nettest.Run(t, n1.node, "ip", "-o", "link", "show", "type", "vxlan") + n1.routes(t) + n1.tunnels(t)
	}
	settled(n1)
	before := check()
	ip(t, n1.node, "addr del 192.168.0.1/24 dev eth0")
	within(
		t,
		soon,
		"the loss is told",
		func() bool { return slices.Equal(n1.reconciler.Status().Topology.LostFamilies, []int{4}) },
	)
	if now := check(); now != before {
		t.Errorf("without the address\n%s\nbefore\n%s", now, before)
	}
	ip(t, n1.node, "addr add 192.168.0.1/24 dev eth0")
	within(t, soon, "the address is found", func() bool { return len(n1.reconciler.Status().Topology.LostFamilies) == 0 })
	if now := check(); now != before {
		t.Errorf("with the address again\n%s\nbefore\n%s", now, before)
	}
	c.allReach(soon)
}

// A link that is configured is the way to the others whatever address the Node has, and its address is followed.
func TestChosenInterface(t *testing.T) {
	c := newMesh(t, mesh.Config{Interface: "eth0"})
	n1 := c.nodes[0]
	c.allReach(soon)
	_, err := c.store.Modify(t.Context(), store.NodeKey("n1"), func(fields map[string]any) error {
		fields["status"] = map[string]any{"addresses": []any{map[string]any{"type": "InternalIP", "address": "203.0.113.9"}}}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	underlay := func() string {
		t := n1.reconciler.Status().Topology
		if len(t.Underlay) != 1 {
			return fmt.Sprint(len(t.Underlay), " underlays")
		}
		return fmt.Sprint(t.Underlay[0].Link, " ", t.Underlay[0].Address, " ", t.Publish.Addrs)
	}
	within(t, soon, "the link counts", func() bool { return underlay() == "eth0 192.168.0.1 [192.168.0.1]" })
	ip(t, n1.node, "addr add 192.168.0.11/24 dev eth0", "addr del 192.168.0.1/24 dev eth0",
		"addr add 192.168.0.11/24 dev eth0")
	within(t, soon, "its address is followed", func() bool { return underlay() == "eth0 192.168.0.11 [192.168.0.11]" })
}

// What is sent to an address that no pod has is refused, and that is gone when it is not wanted any more.
func TestBlackhole(t *testing.T) {
	c := newMesh(t, mesh.Config{Blackhole: true})
	n1 := c.nodes[0]
	check := func() string {
		return nettest.Run(t, n1.node, "ip", "route", "show", "type", "blackhole") +
			nettest.Run(t, n1.node, "ip", "-6", "route", "show", "type", "blackhole")
	}
	within(t, soon, "both families", func() bool {
		return strings.Contains(check(), "10.244.1.0/24") && strings.Contains(check(), "fd00:244:1::/64")
	})
	c.allReach(soon)
	want := check()
	settled(n1)
	writes := n1.conn.Writes()
	ip(t, n1.node, "route flush type blackhole")
	within(t, soon, "repaired", func() bool { return check() == want })
	settled(n1)
	if n := n1.conn.Writes() - writes; n > 4 {
		t.Errorf("%d writes to repair one route", n)
	}
	n1.stop()
	n1.mesh = mesh.Config{}
	n1.start(c)
	within(t, soon, "gone", func() bool { return check() == "" })
}
