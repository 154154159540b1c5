// SPDX-License-Identifier: Apache-2.0

package tunnel_test

import (
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/weft-net/weft/internal/cluster/store"
	"github.com/weft-net/weft/internal/nettest"
	"github.com/weft-net/weft/internal/plan/mesh"
)

// TestUDP: pods reach each other through datagrams, and external changes are repaired.
func TestUDP(t *testing.T) {
	nettest.Need(t, "tap")
	how := mesh.Config{Backend: "udp"}
	c := newCluster(t, how, how, how)
	c.allReach()
	n1, n2 := c.nodes[0], c.nodes[1]
	nettest.Run(t, n1.node, "ping", "-n", "-c1", "-W20", n2.addrs[0]) // from the node itself
	for _, harm := range []string{
		"ip link del flannel0", "ip link set flannel0 down", "ip -4 addr flush dev flannel0", "ip route flush proto 119",
		"ip link set flannel0 mtu 1000",
	} {
		c.repaired(n1, harm)
	}
	if err := c.store.Delete(t.Context(), store.NodeKey("n3"), ""); err != nil {
		t.Fatal(err)
	}
	within(t, "nothing of n3 is left", func() bool {
		return !strings.Contains(nettest.Run(t, n1.node, "ip", "route"), "10.244.3.") && n1.reaches(n2.addrs[0])
	})
	// A restarted agent finds its device, and its peers reach it.
	n2.stop()
	if out := nettest.Run(t, n2.node, "ip", "route"); !strings.Contains(out, "10.244.1.0/24 dev flannel0") {
		t.Errorf("packets to pods would go elsewhere while nobody carries them:\n%s", out)
	}
	n2.start(c)
	within(t, "n2 is reached again", func() bool { return n1.reaches(n2.addrs[0]) && n1.reaches(n2.addrs[1]) })
	// Another backend leaves nothing of this one.
	for _, m := range []*testNode{n1, n2} {
		m.stop()
		m.mesh = mesh.Config{Backend: "host-gw"}
		m.start(c)
		within(t, m.name+" publishes host-gw", func() bool { return m.reconciler.Status().Topology.Publish.Backend == "host-gw" })
	}
	c.nodes = c.nodes[:2]
	c.publish()
	within(t, "no device is left", func() bool {
		return !strings.Contains(nettest.Run(t, n1.node, "ip", "link"), "flannel0")
	})
	c.allReach()
}

// A node whose address changes is found at the new one, and its tunnel listens there.
func TestUDPMoves(t *testing.T) {
	nettest.Need(t, "tap")
	how := mesh.Config{Backend: "udp"}
	c := newCluster(t, how, how)
	c.allReach()
	n1, n2 := c.nodes[0], c.nodes[1]
	ip(t, n1.node, "addr del 192.168.0.1/24 dev eth0", "addr add 192.168.0.11/24 dev eth0")
	neigh(t, n2.node, "eth0", 1, "192.168.0.11")
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
	within(t, "n1 publishes its new address", func() bool {
		return slices.Contains(n1.reconciler.Status().Topology.Publish.Addrs, netip.MustParseAddr("192.168.0.11"))
	})
	c.publish()
	c.allReach()
}

// Each node is reached by what it publishes, whatever the others use.
func TestMixed(t *testing.T) {
	nettest.Need(t, "tap", "vxlan")
	c := newCluster(t, mesh.Config{Backend: "host-gw"}, mesh.Config{Backend: "vxlan"}, mesh.Config{Backend: "udp"})
	for i, want := range map[int]string{1: "10.244.2.0/24 via 10.244.2.0 dev flannel.1", 2: "10.244.3.0/24 dev flannel0"} {
		within(t, "n1 has the route "+want, func() bool {
			return strings.Contains(nettest.Run(t, c.nodes[0].node, "ip", "route"), want)
		})
		want = "10.244.1.0/24 via 192.168.0.1 dev eth0"
		within(t, c.nodes[i].name+" has the route "+want, func() bool {
			return strings.Contains(nettest.Run(t, c.nodes[i].node, "ip", "route"), want)
		})
	}
	c.allReach()
	// One changes its backend, and the others follow.
	n3 := c.nodes[2]
	n3.stop()
	n3.mesh.Backend = "vxlan"
	n3.start(c)
	within(t, "n3 publishes vxlan", func() bool { return n3.reconciler.Status().Topology.Publish.Backend == "vxlan" })
	c.publish()
	within(t, "n1 has no tunnel any more", func() bool {
		return !strings.Contains(nettest.Run(t, c.nodes[0].node, "ip", "link"), "flannel0")
	})
	c.allReach()
}

// TestWireguard: in the kernel or else in this process: keys are created and published, peers change.
func TestWireguard(t *testing.T) {
	nettest.Need(t, "tap")
	for _, mode := range []string{"", mesh.ModeAuto} {
		t.Run("mode "+mode, func(t *testing.T) {
			psk := filepath.Join(t.TempDir(), "psk")
			if err := os.WriteFile(psk, []byte("AQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQE=\n"), 0o600); err != nil {
				t.Fatal(err)
			}
			how := mesh.Config{
				Backend: "wireguard", WireGuard: mesh.WireGuard{PSKFile: psk, Mode: mode, PersistentKeepaliveInterval: 25},
			}
			c := newCluster(t, how, how, how)
			c.allReach()
			n1, n2, n3 := c.nodes[0], c.nodes[1], c.nodes[2]
			if f, err := os.Stat(n1.mesh.WireGuard.KeyFile); err != nil || f.Mode().Perm() != 0o600 {
				t.Errorf("key file: %v %v", f, err)
			}
			kind := "wireguard"
			if n1.reconciler.Status().Topology.Tunnels[0].Options[mesh.OptionUserSpace] != "" {
				kind = "tun type tun"
			}
			if _, err := nettest.Try(n1.pod, "ip", "link", "add", "probe", "type", "wireguard"); (err == nil) !=
				(kind == "wireguard") {
				t.Errorf("flannel-wg is carried by %s; the kernel says of WireGuard: %v", kind, err)
			}
			if out := nettest.Run(t, n1.node, "ip", "-d", "link", "show", "flannel-wg"); !strings.Contains(out, "mtu 1420") ||
				!strings.Contains(out, kind) {
				t.Errorf("flannel-wg: %s", out)
			}
			if _, err := nettest.Try(n1.node, "ip", "link", "show", "flannel-wg-v6"); (err == nil) != (mode == "") {
				t.Errorf("a device for IPv6: %v", err)
			}
			c.repaired(n1, "ip link del flannel-wg")
			c.repaired(n1, "ip link set flannel-wg down")
			// A peer with another key is known by that.
			n2.stop()
			if err := os.Remove(n2.mesh.WireGuard.KeyFile); err != nil {
				t.Fatal(err)
			}
			old := n2.reconciler.Status().Topology.Publish.Data
			n2.start(c)
			within(t, "another key", func() bool {
				now := n2.reconciler.Status().Topology.Publish.Data
				return now != "" && now != old
			})
			c.publish()
			c.allReach()
			if err := c.store.Delete(t.Context(), store.NodeKey("n3"), ""); err != nil {
				t.Fatal(err)
			}
			within(t, "n3 is not reached, n2 is", func() bool { return !n1.reaches(n3.addrs[0]) && n1.reaches(n2.addrs[0]) })
		})
	}
}
