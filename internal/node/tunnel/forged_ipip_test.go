// SPDX-License-Identifier: Apache-2.0

package tunnel_test

import (
	"net/netip"
	"strconv"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/weft-net/weft/internal/cluster/store"
	"github.com/weft-net/weft/internal/kernel"
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/nettest"
	"github.com/weft-net/weft/internal/plan/mesh"
	"github.com/weft-net/weft/internal/state"
)

// TestForgedProtocols: where the mesh has no tunnels at all, a pod's IP-in-IP packets do not get to any node either:
// another program's device may decapsulate them there. Nor is neighbor discovery routed to other nodes.
func TestForgedProtocols(t *testing.T) {
	how := mesh.Config{
		Masquerade: []netip.Prefix{netip.MustParsePrefix("10.244.0.0/16"), netip.MustParsePrefix("fd00:244::/32")},
	}
	c := newCluster(t, how, how, how)
	c.allReach()
	n1, n2 := c.nodes[0], c.nodes[1]
	guarded(t, n1)
	guarded(t, n2)
	attack := func(want bool) {
		for _, protocol := range []int{4, 41} {
			for _, to := range []struct {
				at             *testNode
				addr, family   string
				inner, innerTo string
			}{
				{n1, "192.168.0.1", "ip4:", "10.244.2.99", "10.244.1.5"},
				{n2, "192.168.0.2", "ip4:", "10.244.1.99", "10.244.2.5"},
				{n1, "fd00::1", "ip6:", "fd00:244:2::99", "fd00:244:1::5"},
				{n2, "fd00::2", "ip6:", "fd00:244:1::99", "fd00:244:2::5"},
			} {
				e := listen(t, to.at.node, to.family+strconv.Itoa(protocol), to.addr)
				limit := 200 * time.Millisecond
				if want {
					limit = time.Minute
				}
				send(t, n1.pod, to.addr, 0, protocol, datagram(to.inner, to.innerTo, "forged"))
				if got := e.hears("forged", limit); got != want {
					t.Errorf("protocol %d to %s: arrives %v, want %v\n%s", protocol, to.addr, got, want, rulesOf(n1))
				}
				_ = e.Close()
			}
		}
	}
	solicit := func(want bool) {
		e, limit := listen(t, n2.pod, "ip6:58", "::"), 200*time.Millisecond
		if want {
			limit = time.Minute
		}
		err := n1.pod.Do(func() error {
			fd, err := unix.Socket(unix.AF_INET6, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.IPPROTO_ICMPV6)
			if err != nil {
				return err
			}
			defer func() { _ = unix.Close(fd) }()
			if err := unix.SetsockoptInt(fd, unix.IPPROTO_IPV6, unix.IPV6_UNICAST_HOPS, 255); err != nil {
				return err
			}
			return unix.Sendto(fd, append([]byte{135, 0, 0, 0, 0, 0, 0, 0}, "forged"...), 0, &unix.SockaddrInet6{
				Addr: netip.MustParseAddr(n2.addrs[1]).As16(),
			})
		})
		if err != nil {
			t.Fatal(err)
		}
		if got := e.hears("forged", limit); got != want {
			t.Errorf("a neighbor solicitation is routed: %v, want %v", got, want)
		}
		_ = e.Close()
	}
	attack(false)
	solicit(false)
	e := listen(t, n2.node, "ip4:41", "192.168.0.2")
	send(t, c.nodes[2].node, "192.168.0.2", 0, 41, datagram("fd00:244:3::5", "fd00:244:2::5", "another host's own"))
	if !e.hears("another host's own", time.Minute) {
		t.Error("a tunnel of the node's own is closed")
	}
	_ = e.Close()
	for _, m := range c.nodes {
		m.leave()
		nettest.Run(t, m.node, "nft", "delete", "table", "inet", mesh.GuardTable)
	}
	attack(true)
	solicit(true)
}

// TestForgedIPIP: of ipip a node accepts what is a peer's, by the outer and the inner address, whether or not the
// kernel has the device.
func TestForgedIPIP(t *testing.T) {
	c := newCluster(t, mesh.Config{}, mesh.Config{}, mesh.Config{})
	n1, n2 := c.nodes[0], c.nodes[1]
	n2.leave()
	conn, err := kernel.Dial(n2.node)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	spaces, how := kernel.Spaces{
		Host: conn,
	}, mesh.Config{Backend: "ipip", Masquerade: []netip.Prefix{netip.MustParsePrefix("10.244.0.0/16")}}
	cluster := model.Cluster{Self: "n2"}
	for _, m := range c.nodes {
		o, err := c.store.Get(store.NodeKey(m.name))
		if err != nil {
			t.Fatal(err)
		}
		n, err := o.Node()
		if err != nil {
			t.Fatal(err)
		}
		n.Published = nil
		cluster.Nodes = append(cluster.Nodes, n)
	}
	answers, err := spaces.Observe(t.Context(), mesh.Observe(&cluster, how))
	if err != nil {
		t.Fatal(err)
	}
	topo, err := mesh.Plan(&cluster, how, answers)
	if err != nil {
		t.Fatal(err)
	}
	var guard state.Fragment
	for _, table := range topo.Node.Host.Tables {
		if table.Name == mesh.GuardTable {
			guard.Host.Tables = append(guard.Host.Tables, table)
		}
	}
	hear := func(from *testNode, inner string) bool {
		e := listen(t, n2.node, "ip4:4", "192.168.0.2")
		defer func() { _ = e.Close() }()
		send(t, from.node, "192.168.0.2", 0, 4, datagram(inner, n2.addrs[0], "forged"))
		send(t, n1.node, "192.168.0.2", 0, 4, datagram("10.244.1.5", n2.addrs[0], "honest"))
		before, ok := e.until("honest", time.Minute)
		if !ok {
			t.Errorf("what a peer sends in its own name does not arrive\n%s", rulesOf(n2))
		}
		return before != ""
	}
	if !hear(n1, "10.244.3.5") {
		t.Error("without the guard it does not arrive")
	}
	if err := spaces.Apply(t.Context(), guard); err != nil {
		t.Fatal(err)
	}
	for from, inner := range map[*testNode][]string{
		n1: {"10.244.3.5", "10.244.2.99", "192.168.0.2", "192.168.0.3", "8.8.8.8"}, c.nodes[2]: {"10.244.1.5", "192.168.0.1"},
	} {
		for _, addr := range inner {
			if hear(from, addr) {
				t.Errorf("%s sends as %s\n%s", from.name, addr, rulesOf(n2))
			}
		}
	}
}
