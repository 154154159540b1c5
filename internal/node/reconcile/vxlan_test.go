// SPDX-License-Identifier: Apache-2.0

package reconcile_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weft-net/weft/internal/cluster/store"
	"github.com/weft-net/weft/internal/nettest"
	"github.com/weft-net/weft/internal/plan/mesh"
)

// tunnels is all that a node has of its VXLAN devices.
func (m *testNode) tunnels(t *testing.T) string {
	t.Helper()
	out := m.routes(t)
	for _, dev := range []string{"flannel.1", "flannel-v6.1"} {
		for _, argv := range []string{
			"ip -d -o link show " + dev, "ip -o addr show " + dev, "bridge fdb show dev " + dev,
			"ip neigh show nud permanent dev " + dev,
		} {
			part, _ := nettest.Try(m.node, strings.Fields(argv)...)
			lines := strings.Split(strings.ReplaceAll(part, " tentative", ""), "\n")
			for i := range lines {
				if _, after, found := strings.Cut(lines[i], ": "+dev); found { // without the index
					lines[i] = after
				}
			}
			slices.Sort(lines)
			out += strings.Join(lines, "\n")
		}
	}
	return out
}

func (c *cluster) allReach(d time.Duration) {
	c.t.Helper()
	for _, from := range c.nodes {
		for _, to := range c.nodes {
			for _, addr := range to.addrs {
				within(c.t, d, "ping from the pod of "+from.name+" to "+addr, func() bool {
					_, err := nettest.Try(from.pod, "ping", "-n", "-c1", "-W1", addr)
					return err == nil
				})
			}
		}
	}
}

// TestVXLAN: pods reach each other through tunnels, external changes are repaired, and a peer's objects are deleted
// with it.
func TestVXLAN(t *testing.T) {
	nettest.Need(t, "vxlan")
	c := newMesh(t, mesh.Config{Backend: "vxlan"})
	c.allReach(soon)
	n1 := c.nodes[0]
	if out := nettest.Run(t, n1.node, "ip", "-d", "link", "show", "flannel.1"); !strings.Contains(out, "mtu 1450") ||
		!strings.Contains(out, "dstport 8472") {
		t.Errorf("flannel.1: %s", out)
	}
	if out := nettest.Run(t, n1.node, "ip", "link", "show", "flannel-v6.1"); !strings.Contains(out, "mtu 1430") {
		t.Errorf("flannel-v6.1: %s", out)
	}
	nettest.Run(t, n1.node, "ping", "-n", "-c1", "-W20", c.nodes[1].addrs[0]) // from the node itself
	want := n1.tunnels(t)
	for _, harm := range []string{
		"ip link del flannel.1", "ip link set flannel.1 down", "ip link set flannel-v6.1 mtu 1300",
		"ip -4 addr flush dev flannel.1",
		"ip neigh flush nud permanent dev flannel.1", "ip route flush proto 119",
		"ip link set flannel.1 address 02:00:00:00:00:99",
	} {
		time.Sleep(400 * time.Millisecond) // a pass that follows our own writes is over
		nettest.Run(t, n1.node, strings.Fields(harm)...)
		within(t, soon, "repaired after "+harm, func() bool { return n1.tunnels(t) == want })
	}
	entry := strings.Fields(nettest.Run(t, n1.node, "bridge", "fdb", "show", "dev", "flannel.1"))
	time.Sleep(400 * time.Millisecond)
	nettest.Run(t, n1.node, "bridge", "fdb", "del", entry[0], "dev", "flannel.1")
	within(t, soon, "repaired after an entry of the forwarding table was deleted", func() bool {
		return n1.tunnels(t) == want
	})
	guard := func() string { return nettest.Run(t, n1.node, "nft", "-s", "list", "table", "inet", mesh.GuardTable) }
	full := guard()
	if !strings.Contains(full, "192.168.0.3 . 10.244.3.0") {
		t.Errorf("n3 is not let in:\n%s", full)
	}
	if err := c.store.Delete(t.Context(), store.NodeKey("n3"), ""); err != nil {
		t.Fatal(err)
	}
	within(t, soon, "nothing of n3 is left", func() bool {
		now := n1.tunnels(t) + guard()
		return !strings.Contains(now, "192.168.0.3") && !strings.Contains(now, "fd00::3") &&
			!strings.Contains(now, "10.244.3.") && !strings.Contains(now, "fd00:244:3:")
	})
	c.add(3)
	within(t, soon, "n3 is let in again", func() bool { return guard() == full })
}

// Another backend takes the place of one: nothing of the old one is left, and no peer is lost on the way.
func TestVXLANAndBack(t *testing.T) {
	nettest.Need(t, "vxlan")
	c := newCluster(t)
	c.allReach(soon)
	n1 := c.nodes[0]
	plain := n1.routes(t)
	for _, m := range c.nodes {
		m.stop()
		m.mesh = mesh.Config{Backend: "vxlan", VXLAN: mesh.VXLAN{VNI: 7, Port: 4789}}
		m.start(c)
	}
	within(t, soon, "routes into the tunnels only", func() bool {
		r := n1.routes(t)
		return strings.Count(r, " via ") == 4 && !strings.Contains(r, "eth0") && strings.Contains(r, "flannel.7")
	})
	c.allReach(soon)
	for _, m := range c.nodes {
		m.stop()
		m.mesh = mesh.Config{Backend: "vxlan", VXLAN: mesh.VXLAN{VNI: 7, Port: 4789, DirectRouting: true}}
		m.start(c)
	}
	within(t, soon, "direct routes", func() bool { return n1.routes(t) == plain })
	for _, m := range c.nodes {
		m.stop()
		m.mesh = mesh.Config{}
		m.start(c)
	}
	within(t, soon, "no device left", func() bool {
		return n1.routes(t) == plain && !strings.Contains(nettest.Run(t, n1.node, "ip", "link"), "flannel")
	})
	c.allReach(soon)
}
