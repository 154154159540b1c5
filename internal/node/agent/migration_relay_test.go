// SPDX-License-Identifier: Apache-2.0

package agent_test

import (
	"fmt"
	"net"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/weft-net/weft/internal/cluster/store"
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/netns"
	"github.com/weft-net/weft/internal/nettest"
	"github.com/weft-net/weft/internal/node/reconcile"
	"github.com/weft-net/weft/internal/plan/mesh"
)

// third is a node whose agent does not know of the migration: it sends to the VM through the source node.
func (p two) third(by *world) *netns.NS {
	p.t.Helper()
	o, err := store.NodeObject(model.Node{
		Name: "n3", Addrs: []netip.Addr{netip.MustParseAddr("192.168.77.3"), netip.MustParseAddr("fd00:77::3")},
	})
	p.write(o, err)
	ns := nettest.NS(p.t, "n3")
	for _, line := range []string{
		"link add to3 type veth peer name eth0 netns " + ns.Path(), "link set to3 up", "addr add 192.168.78.1/24 dev to3",
		"addr add fd00:78::1/64 dev to3 nodad",
		"route add 192.168.77.3 dev to3", "route add fd00:77::3 dev to3",
	} {
		nettest.IP(p.t, by.node, line)
	}
	for _, line := range []string{
		"link set lo up", "link set eth0 up", "addr add 192.168.77.3/32 dev eth0", "addr add fd00:77::3/128 dev eth0 nodad",
		"route add 192.168.78.1 dev eth0", "route add fd00:78::1 dev eth0", "route add default via 192.168.78.1",
		"route add default via fd00:78::1",
	} {
		nettest.IP(p.t, ns, line)
	}
	return ns
}

// gets reports whether the VM receives a packet from a namespace, in time.
func (m *vmPod) gets(t *testing.T, from *netns.NS, a netip.Addr, limit time.Duration) bool {
	t.Helper()
	return passes(t, from, m.ns, a, limit)
}

// speaksTo reports whether a packet of the VM arrives in a namespace, in time.
func (m *vmPod) speaksTo(t *testing.T, ns *netns.NS, a netip.Addr, limit time.Duration) bool {
	t.Helper()
	return passes(t, m.ns, ns, a, limit)
}

func passes(t *testing.T, from, to *netns.NS, a netip.Addr, limit time.Duration) bool {
	t.Helper()
	var at net.PacketConn
	network := "udp6"
	if a.Is4() {
		network = "udp4"
	}
	if err := to.Do(func() (err error) { at, err = net.ListenPacket(network, ":9999"); return err }); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = at.Close() }()
	buf := make([]byte, 16)
	for end := time.Now().Add(limit); time.Now().Before(end); {
		err := from.Do(func() error {
			c, err := net.Dial("udp", netip.AddrPortFrom(a, 9999).String())
			if err != nil {
				return err
			}
			defer func() { _ = c.Close() }()
			_, err = c.Write([]byte("hello"))
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		if err := at.SetReadDeadline(time.Now().Add(50 * time.Millisecond)); err != nil {
			t.Fatal(err)
		}
		if n, _, _ := at.ReadFrom(buf); n > 0 {
			return true
		}
	}
	return false
}

// TestMigrationBeforeOthersKnow: packets that a third node still sends to the source node are forwarded to the
// target, and keep the sender's address; the source node forwards for no other address, and not for other senders.
func TestMigrationBeforeOthersKnow(t *testing.T) {
	nettest.EndToEnd(t)
	nettest.Need(t, "vxlan")
	p := newTwo(t, twoPools)
	n1, n2 := p.nodes[0], p.nodes[1]
	a := p.vmPod(n1, "a", false)
	_, plain := p.pod(n2, "plain")
	third := p.third(n1)
	b := p.vmPod(n2, "b", true)
	p.heard(b)
	peer, _ := p.pod(n1, "peer")
	a.pause(t)
	b.speaks(t, b.addrs[0])
	p.answers(b, peer)
	guard := func() string { return nettest.Run(t, n2.node, "nft", "list", "table", "inet", mesh.GuardTable) }
	for _, addr := range b.addrs {
		if !b.gets(t, third, addr, 20*time.Second) {
			t.Errorf("what is sent to %s by way of the machine's old node does not arrive\n%s", addr, guard())
		}
	}
	for i, addr := range plain {
		if want := fmt.Sprintf("192.168.77.1 . %s", addr); i == 0 && strings.Contains(guard(), want) {
			t.Errorf("the old node may pass on to %s", addr)
		}
	}
	a.del(t)
	b.del(t)
	p.until("nothing is passed on to a machine that is gone", func() bool { return !strings.Contains(guard(), "relays4") })
}

// TestRelaysOutliveAgent: after a kill and restart during or just after a migration to its node, an agent still accepts
// packets that the source node forwards.
func TestRelaysOutliveAgent(t *testing.T) {
	nettest.EndToEnd(t)
	nettest.Need(t, "vxlan")
	for name, step := range map[string]int{"while it switches": 2, "when it has switched": -1} {
		t.Run(name, func(t *testing.T) {
			p := newTwo(t, twoPools)
			n1, n2 := p.nodes[0], p.nodes[1]
			a := p.vmPod(n1, "a", false)
			third := p.third(n1)
			b := p.vmPod(n2, "b", true)
			p.heard(b)
			peer, _ := p.pod(n1, "peer")
			n2.dieAt(step)
			a.pause(t)
			b.speaks(t, b.addrs[0])
			if step < 0 {
				p.answers(b, peer)
				n2.kill()
			} else if n2.alive(true) {
				t.Fatalf("the agent was not killed: %s", n2.log())
			}
			status := n2.path("state", reconcile.StatusFile)
			before, err := os.Stat(status)
			if err != nil {
				t.Fatal(err)
			}
			n2.start()
			p.answers(b, peer)
			guard := func() string { return nettest.Run(t, n2.node, "nft", "list", "table", "inet", mesh.GuardTable) }
			p.until("the next agent's first pass", func() bool {
				now, err := os.Stat(status)
				return err == nil && now.ModTime().After(before.ModTime())
			})
			for _, addr := range b.addrs {
				if !b.gets(t, third, addr, 20*time.Second) {
					t.Errorf("what is sent to %s by way of the machine's old node does not arrive\n%s", addr, guard())
				}
			}
			a.del(t)
			b.del(t)
		})
	}
}
