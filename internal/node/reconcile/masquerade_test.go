// SPDX-License-Identifier: Apache-2.0

package reconcile_test

import (
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weft-net/weft/internal/netns"
	"github.com/weft-net/weft/internal/nettest"
	"github.com/weft-net/weft/internal/plan/mesh"
)

// TestMasquerade: external hosts see the node's address, pods see each other's, and all rules are deleted when it is
// disabled.
func TestMasquerade(t *testing.T) {
	c := newCluster(t)
	n1, n2 := c.nodes[0], c.nodes[1]
	outside := nettest.NS(t, "outside")
	ip(t, n1.node, "link add out0 address "+mac(60)+" type veth peer name eth0 address "+mac(61)+" netns "+outside.Path(),
		"link set out0 up", "addr add 10.1.0.1/24 dev out0", "addr add fd01::1/64 dev out0 nodad")
	ip(t, outside, "link set eth0 up", "addr add 10.1.0.2/24 dev eth0", "addr add fd01::2/64 dev eth0 nodad")
	neigh(t, n1.node, "out0", 61, "10.1.0.2", "fd01::2")
	neigh(t, outside, "eth0", 60, "10.1.0.1", "fd01::1")
	reach := func(from *netns.NS, to string) bool {
		_, err := nettest.Try(from, "ping", "-c1", "-W1", to)
		return err == nil
	}
	within(t, soon, "routes to all", func() bool { return strings.Count(n1.routes(t), " via ") == 4 })
	if reach(n1.pod, "10.1.0.2") {
		t.Fatal("the outside has no way back to pods, and answers")
	}
	n1.stop()
	n1.mesh = mesh.Config{
		Masquerade: []netip.Prefix{netip.MustParsePrefix("10.244.0.0/16"), netip.MustParsePrefix("fd00:244::/32")},
	}
	n1.start(c)
	for _, to := range []string{"10.1.0.2", "fd01::2"} {
		within(t, soon, "the outside answers at "+to, func() bool { return reach(n1.pod, to) })
	}
	nettest.Run(t, n2.pod, "nft", "add table inet look; add chain inet look in { type filter hook input priority 0; };"+
		"add rule inet look in ip saddr 10.244.1.5 counter; add rule inet look in ip6 saddr fd00:244:1::5 counter")
	for i, to := range n2.addrs {
		within(t, soon, "an answer of "+to, func() bool { return reach(n1.pod, to) }) // also the other node has its route
		if list := nettest.Run(t, n2.pod, "nft", "list", "table", "inet", "look"); strings.Count(list,
			"counter packets 0") != 1-i {
			t.Errorf("%s does not see the pod's own address:\n%s", to, list)
		}
	}
	if list := nettest.Run(t, n1.node, "nft", "list", "table", "inet", mesh.MasqueradeTable); strings.Count(list,
		"masquerade fully-random") != 2 {
		t.Errorf("ports are not random:\n%s", list)
	}
	ip(t, outside, "route add 10.244.1.0/24 via 10.1.0.1", "route add fd00:244:1::/64 via fd01::1")
	nettest.Run(t, outside, "nft", "add table inet look; add chain inet look in { type filter hook input priority 0; };"+
		"add rule inet look in ip saddr 10.244.1.5 counter; add rule inet look in ip6 saddr fd00:244:1::5 counter")
	n1.stop()
	n1.mesh.NoMasquerade = []netip.Prefix{
		netip.MustParsePrefix("10.1.0.0/24"), netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("fd01::/64"),
	}
	n1.start(c)
	within(t, soon, "an exception sees the pod's own addresses", func() bool {
		return reach(n1.pod, "10.1.0.2") && reach(n1.pod, "fd01::2") &&
			!strings.Contains(nettest.Run(t, outside, "nft", "list", "table", "inet", "look"), "counter packets 0")
	})
	n1.stop()
	n1.mesh = mesh.Config{}
	n1.start(c)
	within(t, soon, "the table is gone", func() bool {
		return !strings.Contains(nettest.Run(t, n1.node, "nft", "list", "tables"), mesh.MasqueradeTable)
	})
}

// Changed exceptions are read again and applied.
func TestExceptions(t *testing.T) {
	var keep atomic.Pointer[[]netip.Prefix]
	keep.Store(&[]netip.Prefix{netip.MustParsePrefix("169.254.0.0/16")})
	c := newMesh(t, mesh.Config{Masquerade: []netip.Prefix{netip.MustParsePrefix("10.244.0.0/16")}})
	n1 := c.nodes[0]
	n1.stop()
	n1.exceptions = func() ([]netip.Prefix, time.Duration) { return *keep.Load(), 20 * time.Millisecond }
	n1.start(c)
	check := func() string {
		out, _ := nettest.Try(n1.node, "nft", "list", "set", "inet", mesh.MasqueradeTable, "keep4")
		return out
	}
	within(t, soon, "what it said at first", func() bool { return strings.Contains(check(), "169.254.0.0/16") })
	keep.Store(&[]netip.Prefix{netip.MustParsePrefix("10.9.0.0/16"), netip.MustParsePrefix("10.9.7.0/24")})
	within(t, soon, "what it says now", func() bool {
		return strings.Contains(check(), "10.9.0.0/16") && !strings.Contains(check(), "169.254")
	})
}
