// SPDX-License-Identifier: Apache-2.0

package nft

import (
	"bytes"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/weft-net/weft/internal/netns"
	"github.com/weft-net/weft/internal/nettest"
	"github.com/weft-net/weft/internal/state"
)

// TestMasquerade sends real packets: a pod's packets to external addresses have the node's address, those to its own
// network the pod's, and after Remove all have the pod's.
func TestMasquerade(t *testing.T) {
	pod, node, world := nettest.NS(t, "pod"), nettest.NS(t, "node"), nettest.NS(t, "world")
	nettest.Run(t, node, "sh", "-c", "ip link add p type veth peer name eth0 && ip link add w type veth peer name eth1")
	moveLink(t, node, "eth0", pod)
	moveLink(t, node, "eth1", world)
	for _, c := range []struct {
		ns  *netns.NS
		cmd string
	}{
		{
			node,
			"ip addr add 10.1.0.1/24 dev p; ip addr add 192.0.2.1/24 dev w; ip link set p up; ip link set w up; ip link set lo up",
		},
		{node, "ip addr add fd00:1::1/64 dev p nodad; ip addr add fd00:2::1/64 dev w nodad"},
		{node, "echo 1 > /proc/sys/net/ipv4/ip_forward; echo 1 > /proc/sys/net/ipv6/conf/all/forwarding"},
		{
			pod,
			"ip addr add 10.1.0.2/24 dev eth0; ip addr add fd00:1::2/64 dev eth0 nodad; ip link set eth0 up; ip route add default via 10.1.0.1; ip route add default via fd00:1::1",
		},
		{
			world,
			"ip addr add 192.0.2.9/24 dev eth1; ip addr add 203.0.113.9/32 dev eth1; ip addr add fd00:2::9/64 dev eth1 nodad; ip link set eth1 up; ip route add 10.1.0.0/24 via 192.0.2.1; ip route add fd00:1::/64 via fd00:2::1",
		},
		{node, "ip route add 203.0.113.9 via 192.0.2.9"},
	} {
		nettest.Run(t, c.ns, "sh", "-ec", c.cmd)
	}
	addNeighbors(t, pod, node, world)
	c := dial(t, node)
	tbl := masq("10.1.0.2")
	tbl.Sets[2].Elements = []state.Element{{Key: []string{"10.1.0.2", "203.0.113.0/24"}}}
	tbl.Sets[1].Elements = []state.Element{{Key: []string{"fd00:1::2"}}}
	apply(t, c, tbl)
	for _, x := range []struct{ to, want string }{
		{"192.0.2.9:7000", "192.0.2.1"}, {"203.0.113.9:7001", "10.1.0.2"}, {"[fd00:2::9]:7002", "fd00:2::1"},
	} {
		if got := seenAs(t, pod, world, x.to); got != x.want {
			t.Errorf("the world at %s sees the pod as %s, want %s", x.to, got, x.want)
		}
	}
	if err := c.Remove(bounded(t), []state.Table{tbl}); err != nil {
		t.Fatal(err)
	}
	if got := seenAs(t, pod, world, "192.0.2.9:7003"); got != "10.1.0.2" {
		t.Errorf("after Remove the world sees the pod as %s, want 10.1.0.2", got)
	}
}

// addNeighbors adds permanent neighbors: the kernel's limit of 1,024 learned neighbors is for all namespaces of the host
// together, and another test's thousand pods may have reached it.
func addNeighbors(t *testing.T, pod, node, world *netns.NS) {
	t.Helper()
	const podMAC, pMAC, wMAC, worldMAC = "02:00:00:00:00:01", "02:00:00:00:00:02", "02:00:00:00:00:03", "02:00:00:00:00:04"
	for _, l := range []struct {
		ns        *netns.NS
		link, mac string
		peers     map[string]string
	}{
		{pod, "eth0", podMAC, map[string]string{"10.1.0.1": pMAC, "fd00:1::1": pMAC}},
		{node, "p", pMAC, map[string]string{"10.1.0.2": podMAC, "fd00:1::2": podMAC}},
		{node, "w", wMAC, map[string]string{"192.0.2.9": worldMAC, "fd00:2::9": worldMAC}},
		{world, "eth1", worldMAC, map[string]string{"192.0.2.1": wMAC, "fd00:2::1": wMAC}},
	} {
		nettest.Run(t, l.ns, "ip", "link", "set", l.link, "address", l.mac)
		for ip, mac := range l.peers {
			nettest.Run(t, l.ns, "ip", "neigh", "replace", ip, "lladdr", mac, "dev", l.link, "nud", "permanent")
		}
	}
}

// moveLink moves a link to another namespace.
func moveLink(t *testing.T, from *netns.NS, link string, to *netns.NS) {
	t.Helper()
	if out, err := nettest.Try(from, "ip", "link", "set", link, "netns", to.Path()); err != nil {
		t.Fatalf("give %s: %v: %s", link, err, out)
	}
}

// seenAs sends a datagram from the pod and returns the source address that the receiver saw.
func seenAs(t *testing.T, from, at *netns.NS, to string) string {
	t.Helper()
	var receiver net.PacketConn
	err := at.Do(func() error {
		var err error
		receiver, err = net.ListenPacket("udp", to)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = receiver.Close() }()
	var sender net.Conn
	err = from.Do(func() error {
		var err error
		sender, err = net.Dial("udp", to)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = sender.Close() }()
	buf := make([]byte, 16)
	for range 100 { // the first ones may be lost during neighbor discovery
		if _, err := sender.Write([]byte("weft")); err != nil {
			t.Fatal(err)
		}
		_ = receiver.SetReadDeadline(time.Now().Add(300 * time.Millisecond))
		n, who, err := receiver.ReadFrom(buf)
		if err == nil && bytes.Equal(buf[:n], []byte("weft")) {
			host, _, _ := net.SplitHostPort(who.String())
			return host
		}
	}
	return "nobody: no packet came"
}

// TestMany adds 10,000 elements to a set in one transaction, reads them, and deletes them.
func TestMany(t *testing.T) {
	ns := nettest.NS(t, "n")
	c := dial(t, ns)
	tbl := state.Table{Family: "inet", Name: "weft", Shared: true, Sets: []state.Set{
		{Name: "plain", Key: "ipv4_addr"}, {Name: "nets", Key: "ipv4_addr", Interval: true},
	}}
	for i := range 10000 {
		e := state.Element{Key: []string{fmt.Sprintf("10.%d.%d.%d", i>>14, i>>7&127, i&127)}}
		tbl.Sets[0].Elements = append(tbl.Sets[0].Elements, e)
	}
	for i := range 500 {
		tbl.Sets[1].Elements = append(tbl.Sets[1].Elements, state.Element{
			Key: []string{fmt.Sprintf("10.%d.%d.0/25", i>>8, i&255)},
		})
	}
	begin := time.Now()
	apply(t, c, tbl)
	t.Logf("10,500 elements applied in %v", time.Since(begin))
	have, err := c.Read(bounded(t), []state.Table{tbl})
	if err != nil {
		t.Fatal(err)
	}
	if n := len(have[0].Sets[0].Elements) + len(have[0].Sets[1].Elements); n != 10500 {
		t.Errorf("read %d elements, want 10500", n)
	}
	before := gen(t, ns)
	apply(t, c, tbl)
	apply(t, dial(t, ns), tbl)
	if gen(t, ns) != before {
		t.Error("a second Apply wrote something")
	}
	if err := c.Remove(bounded(t), []state.Table{tbl}); err != nil {
		t.Fatal(err)
	}
	if out := list(t, ns, tbl); strings.Contains(out, "elements") {
		t.Errorf("elements are left: %.300s", out)
	}
}
