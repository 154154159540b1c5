// SPDX-License-Identifier: Apache-2.0

package reconcile_test

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/weft-net/weft/internal/cluster/store"
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/nettest"
	"github.com/weft-net/weft/internal/plan/mesh"
)

// newPools is a cluster whose pods are numbered from blocks, one of each family a node.
func newPools(t *testing.T, how model.Encapsulation) *cluster {
	t.Helper()
	c := newMesh(t, mesh.Config{Pools: true})
	c.put(store.AddressPoolObject(store.Object{}, model.AddressPool{
		Name: "p", AssignmentMode: model.AssignAutomatic, Encapsulation: how, NATOutgoing: true,
		Regions: []model.AddressRegion{
			{CIDR: netip.MustParsePrefix("10.244.0.0/16"), BlockSize: 26},
			{CIDR: netip.MustParsePrefix("fd00:244::/32"), BlockSize: 122},
		},
	}))
	for i := 1; i <= 3; i++ {
		c.block(fmt.Sprintf("10.244.%d.0/26", i), i)
		c.block(fmt.Sprintf("fd00:244:%d::/122", i), i)
	}
	return c
}

func (c *cluster) put(o store.Object, err error) {
	c.t.Helper()
	if err == nil {
		_, err = c.store.Create(c.t.Context(), o)
	}
	if err != nil {
		c.t.Fatal(err)
	}
}

func (c *cluster) block(cidr string, node int) {
	c.t.Helper()
	c.put(
		store.AddressBlockObject(store.Object{}, model.AddressBlock{
			Pool: "p", CIDR: netip.MustParsePrefix(cidr), Node: fmt.Sprintf("n%d", node), Claim: "1",
		}),
	)
}

// TestBlocks: pods with addresses of blocks reach each other, blocks change, and a lent address is reached on its
// node. An unused address is refused at once.
func TestBlocks(t *testing.T) {
	c := newPools(t, model.Encapsulation{Kind: model.EncapsulationNone})
	c.allReach(soon)
	n1, n2, n3 := c.nodes[0], c.nodes[1], c.nodes[2]
	var before string
	within(t, soon, "n1 has the routes of blocks, and no others", func() bool {
		// pods reach each other by the nodes' prefixes before
		before = n1.routes(t)
		return !strings.Contains(before, "/24") && strings.Count(before, "unreachable") == 2 &&
			strings.Count(before, " via ") == 4
	})
	c.block("10.244.2.64/26", 3)
	within(t, soon, "a new block's route", func() bool {
		return strings.Contains(n1.routes(t), "10.244.2.64/26 via 192.168.0.3")
	})
	if err := c.store.Delete(t.Context(), store.AddressBlocks().Key("", "p-10-244-2-64-26"), ""); err != nil {
		t.Fatal(err)
	}
	within(t, soon, "the route of a block that went is gone", func() bool { return n1.routes(t) == before })

	// n2 lends an address of its block to n3, whose pod has it.
	ip(t, n3.node, "route add 10.244.2.9 dev veth0")
	ip(t, n3.pod, "addr add 10.244.2.9/32 dev eth0")
	neigh(t, n3.node, "veth0", 23, "10.244.2.9")
	_, err := c.store.Modify(t.Context(), store.AddressBlocks().Key("", "p-10-244-2-0-26"),
		func(fields map[string]any) error {
			fields["spec"].(map[string]any)["ceded"] = map[string]any{"10.244.2.9": "n3/7", "10.244.2.10": ""}
			return nil
		})
	if err != nil {
		t.Fatal(err)
	}
	for _, from := range c.nodes {
		within(t, soon, "the ceded address from "+from.name, func() bool {
			_, err := nettest.Try(from.pod, "ping", "-n", "-c1", "-W1", "10.244.2.9")
			return err == nil
		})
	}
	// Without its pod, the address that n3 holds would go back and forth. That route is n3's own, and the pings do not
	// wait for it.
	within(t, soon, "n3 refuses the address that it holds for no pod", func() bool {
		return strings.Contains(n3.routes(t), "unreachable 10.244.2.9")
	})
	// An address of a block that no pod has: the node says so, instead of sending it on.
	if out, err := nettest.Try(n2.node, "ip", "route", "get", "10.244.2.33"); err == nil {
		t.Errorf("an address of the own block that no pod has: %s", out)
	}
	for _, m := range c.nodes {
		m.stop()
		m.mesh = mesh.Config{}
		m.start(c)
	}
	within(t, soon, "no pool's route is left", func() bool {
		r := n1.routes(t)
		return !strings.Contains(r, "unreachable") && !strings.Contains(r, "/26") && strings.Count(r, "/24 via") == 2 &&
			!strings.Contains(nettest.Run(t, n1.node, "nft", "list", "tables"), mesh.MasqueradeTable)
	})
	c.allReach(soon)
}

// The same through tunnels, also from the nodes themselves; and a pool that changes its mind.
func TestBlocksThroughTunnels(t *testing.T) {
	nettest.Need(t, "vxlan")
	c := newPools(t, model.Encapsulation{Kind: model.EncapsulationVXLAN})
	for i, m := range c.nodes {
		m.stop()
		m.mesh.TunnelAddrs = []netip.Addr{
			netip.MustParseAddr(fmt.Sprintf("10.244.%d.0", i+1)), netip.MustParseAddr(fmt.Sprintf("fd00:244:%d::", i+1)),
		}
		m.start(c)
	}
	c.allReach(soon)
	n1 := c.nodes[0]
	for _, to := range c.nodes[1].addrs {
		within(t, soon, "from the node itself to "+to, func() bool {
			_, err := nettest.Try(n1.node, "ping", "-n", "-c1", "-W1", to)
			return err == nil
		})
	}
	within(t, soon, "n1 has the routes of blocks, through the tunnel", func() bool {
		// by the nodes' prefixes before, without one
		r := n1.routes(t)
		return strings.Count(r, " via ") == 4 && !strings.Contains(r, "dev eth0")
	})
	want := n1.tunnels(t)
	nettest.Run(t, n1.node, "ip", "neigh", "flush", "nud", "permanent", "dev", "flannel.1")
	nettest.Run(t, n1.node, "ip", "route", "flush", "proto", "119")
	within(t, soon, "repaired", func() bool { return n1.tunnels(t) == want })
	_, err := c.store.Modify(t.Context(), store.AddressPools().Key("", "p"), func(fields map[string]any) error {
		spec, ok := fields["spec"].(map[string]any)
		if !ok {
			return errors.New("no spec")
		}
		spec["encapsulation"] = map[string]any{"kind": "vxlan", "when": "CrossSubnet"}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	within(t, soon, "neighbors are reached without a tunnel", func() bool {
		r := n1.routes(t)
		return strings.Count(r, " via ") == 4 && !strings.Contains(r, "flannel") &&
			!strings.Contains(nettest.Run(t, n1.node, "ip", "neigh", "show", "dev", "flannel.1"), "192.168.0.2")
	})
	c.allReach(soon)
}

// Both kinds of tunnels, always and only to another network: n3 is behind a router.
func TestIPIPBlocks(t *testing.T)        { acrossSubnets(t, model.EncapsulationIPIP, "flannel.ipip") }
func TestVXLANBlocksAcross(t *testing.T) { acrossSubnets(t, model.EncapsulationVXLAN, "flannel.1") }

func acrossSubnets(t *testing.T, kind model.EncapsulationKind, device string) {
	nettest.Need(t, string(kind))
	c := newPools(t, model.Encapsulation{Kind: kind})
	c.behindRouter()
	for i, m := range c.nodes {
		m.stop()
		m.mesh.TunnelAddrs = []netip.Addr{netip.MustParseAddr(fmt.Sprintf("10.244.%d.0", i+1))}
		m.start(c)
		nettest.Run(
			t, m.node, "nft", "add table inet look; add chain inet look in { type filter hook prerouting priority -400; };"+
				"add counter inet look wrapped; add rule inet look in ip protocol 4 counter name wrapped; add rule inet look in udp dport 8472 counter name wrapped")
	}
	n1, n2, n3 := c.nodes[0], c.nodes[1], c.nodes[2]
	reach := func(from, to *testNode) {
		t.Helper()
		within(t, soon, from.name+" reaches the pod of "+to.name, func() bool {
			_, err := nettest.Try(from.pod, "ping", "-n", "-c1", "-W1", to.addrs[0])
			return err == nil
		})
	}
	wrapped := func(m *testNode, f func()) bool {
		t.Helper()
		nettest.Run(t, m.node, "nft", "reset", "counter", "inet", "look", "wrapped")
		f()
		return !strings.Contains(nettest.Run(t, m.node, "nft", "list", "counter", "inet", "look", "wrapped"), "packets 0 ")
	}
	for _, from := range c.nodes {
		for _, to := range c.nodes {
			reach(from, to)
		}
	}
	within(t, soon, "packets are always wrapped", func() bool { // once n1 knows the pool
		return wrapped(n2, func() { reach(n1, n2) }) && wrapped(n3, func() { reach(n1, n3) })
	})
	if out := nettest.Run(t, n1.node, "ip", "route", "get", n3.addrs[0]); !strings.Contains(out,
		"dev "+device+" src 10.244.1.0") {
		t.Errorf("the node's own way: %s", out)
	}
	nettest.Run(t, n1.node, "ping", "-n", "-c1", "-W20", n3.addrs[0])
	_, err := c.store.Modify(t.Context(), store.AddressPools().Key("", "p"), func(fields map[string]any) error {
		fields["spec"].(map[string]any)["encapsulation"] = map[string]any{"kind": string(kind), "when": "CrossSubnet"}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for i, m := range c.nodes {
		inside := []int{1, 1, 0}[i]
		within(t, soon, m.name+" goes without a tunnel where it can", func() bool {
			return strings.Count(nettest.Run(t, m.node, "ip", "route", "show", "proto", "119"), " dev eth0 ") == inside
		})
	}
	for _, from := range c.nodes {
		for _, to := range c.nodes {
			reach(from, to)
		}
	}
	if wrapped(n2, func() { reach(n1, n2) }) {
		t.Error("packets to a neighbor are wrapped")
	}
	if !wrapped(n3, func() { reach(n1, n3) }) || !wrapped(n3, func() { reach(n2, n3) }) {
		t.Error("packets to another network are not wrapped")
	}
}

// behindRouter puts n3 on a network of its own; the switch is the router.
func (c *cluster) behindRouter() {
	c.t.Helper()
	n1, n2, n3 := c.nodes[0], c.nodes[1], c.nodes[2]
	ip(c.t, c.hub, "addr add 192.168.0.254/24 dev br0", "addr add 192.168.9.254/24 dev br0")
	nettest.Run(c.t, c.hub, "sysctl", "-q", "net.ipv4.ip_forward=1", "net.ipv4.conf.br0.send_redirects=0",
		"net.ipv4.conf.all.send_redirects=0")
	ip(c.t, n3.node, "addr del 192.168.0.3/24 dev eth0", "addr add 192.168.9.3/24 dev eth0",
		"route add default via 192.168.9.254")
	ip(c.t, n1.node, "route add default via 192.168.0.254")
	ip(c.t, n2.node, "route add default via 192.168.0.254")
	_, err := c.store.Modify(c.t.Context(), store.NodeKey("n3"), func(fields map[string]any) error {
		fields["status"] = map[string]any{"addresses": []any{map[string]any{"type": "InternalIP", "address": "192.168.9.3"}}}
		return nil
	})
	if err != nil {
		c.t.Fatal(err)
	}
}
