// SPDX-License-Identifier: Apache-2.0

package agent_test

import (
	"fmt"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/containernetworking/cni/libcni"
	current "github.com/containernetworking/cni/pkg/types/100"

	"github.com/weft-net/weft/internal/cluster/store"
	"github.com/weft-net/weft/internal/kernel"
	"github.com/weft-net/weft/internal/kernel/effect"
	"github.com/weft-net/weft/internal/netns"
	"github.com/weft-net/weft/internal/nettest"
	"github.com/weft-net/weft/internal/state"
)

// vmPod is a pod of a VM. The pod's own network stack acts as the guest.
type vmPod struct {
	node  *world
	id    string
	ns    *netns.NS
	addrs []netip.Addr
	conf  *libcni.RuntimeConf
	list  *libcni.NetworkConfigList
}

// vmPod starts a pod of the VM default/db, in standby if incoming is set.
func (p two) vmPod(w *world, id string, incoming bool) *vmPod {
	p.t.Helper()
	args := [][2]string{{"WEFT_VM", "default/db"}}
	if incoming {
		args = append(args, [2]string{"WEFT_INCOMING", "1"})
	}
	return p.vmPodOf(w, id, args)
}

// vmPodOf starts a pod of the VM default/db with the given arguments.
func (p two) vmPodOf(w *world, id string, args [][2]string) *vmPod {
	p.t.Helper()
	m := &vmPod{node: w, id: id, ns: nettest.NS(p.t, id)}
	p.until("the network's configuration", func() (ok bool) {
		l, err := w.own()
		m.list = l
		return err == nil
	})
	m.conf = runtimeConf(id, m.ns)
	m.conf.Args = append([][2]string{{"IgnoreUnknown", "1"}}, args...)
	r, err := w.cni.AddNetworkList(w.ctx(), m.list, m.conf)
	if err != nil {
		p.t.Fatalf("%v\n%s", err, w.log())
	}
	got, err := current.NewResultFromResult(r)
	if err != nil {
		p.t.Fatal(err)
	}
	for _, ip := range got.IPs {
		a, _ := netip.AddrFromSlice(ip.Address.IP)
		m.addrs = append(m.addrs, a.Unmap())
	}
	nettest.ServeName(p.t, m.ns, 80, m.id)
	return m
}

// who returns which pod responds at an address.
func who(from *netns.NS, a netip.Addr) string {
	name, _, _ := strings.Cut(nettest.DialName(from, a, 80, time.Second), " ")
	return name
}

// answers waits until the VM's addresses lead to one of its pods from all nodes.
func (p two) answers(m *vmPod, from ...*netns.NS) {
	p.t.Helper()
	for _, ns := range from {
		for _, a := range m.addrs {
			p.until(fmt.Sprintf("%s answers from %s as %s (now %q)", a, ns.Path(), m.id, who(ns, a)), func() bool {
				return who(ns, a) == m.id
			})
		}
	}
}

// speaks makes the guest announce itself.
func (m *vmPod) speaks(t *testing.T, a netip.Addr) {
	t.Helper()
	if err := effect.SendGratuitousARP(m.ns, []state.Effect{
		{Kind: state.Announce, Link: "eth0", Addrs: []netip.Addr{a}},
	}); err != nil {
		t.Fatal(err)
	}
}

func (m *vmPod) del(t *testing.T) {
	t.Helper()
	if err := m.node.cni.DelNetworkList(m.node.ctx(), m.list, m.conf); err != nil {
		t.Errorf("DEL of %s: %v", m.id, err)
	}
}

// moves waits until there are n moves.
func (p two) moves(n int) {
	p.t.Helper()
	p.until(fmt.Sprintf("%d moves", n), func() bool {
		all, err := p.store.Objects().List(p.t.Context(), store.AddressMoves())
		return err == nil && len(all) == n
	})
}

// tracks opens a connection to the VM, and waits until a node that is not on its path tracks it as well.
func (p two) tracks(w *world, from *netns.NS, m *vmPod) {
	p.t.Helper()
	to := netip.AddrPortFrom(m.addrs[0], 81)
	err := m.ns.Do(func() error {
		l, err := net.Listen("tcp", to.String())
		if err == nil {
			p.t.Cleanup(func() { _ = l.Close() })
		}
		return err
	})
	if err == nil {
		err = from.Do(func() error {
			c, err := net.DialTimeout("tcp", to.String(), 10*time.Second)
			if err == nil {
				p.t.Cleanup(func() { _ = c.Close() })
			}
			return err
		})
	}
	if err != nil {
		p.t.Fatal(err)
	}
	node, err := kernel.Dial(w.node)
	if err != nil {
		p.t.Fatal(err)
	}
	defer func() { _ = node.Close() }()
	p.until("the other node tracks the machine's connection", func() bool {
		all, err := node.ListConntrack(func(c state.Connection) bool { return c.Dst == to })
		return err == nil && len(all) == 1 && all[0].TCP != nil && all[0].SeenReply
	})
}

// heard waits until the node listens for the VM's packets.
func (p two) heard(m *vmPod) {
	p.t.Helper()
	p.until("somebody listens", func() bool {
		out, err := nettest.Try(m.node.node, "cat", "/proc/net/packet")
		return err == nil && strings.Count(out, "\n") > 1
	})
}

// TestMigration: a standby attachment gets no packets of a VM until the VM sends from there; then all nodes route to
// it, also the source node. The VM returns when it sends from the source node again, as after a failed migration, and
// when its pod on the target ends without a packet. An agent that is killed meanwhile continues.
func TestMigration(t *testing.T) {
	nettest.EndToEnd(t)
	nettest.Need(t, "vxlan")
	p := newTwo(t, twoPools)
	n1, n2 := p.nodes[0], p.nodes[1]
	a := p.vmPod(n1, "a", false)
	peer1, _ := p.pod(n1, "peer1")
	peer2, _ := p.pod(n2, "peer2")
	all := []*netns.NS{peer1, peer2}
	p.answers(a, all...)
	b := p.vmPod(n2, "b", true)
	if fmt.Sprint(a.addrs) != fmt.Sprint(b.addrs) || len(a.addrs) != 2 {
		t.Fatalf("%v and %v", a.addrs, b.addrs)
	}
	p.moves(1)
	n2.kill()
	p.answers(a, all...)
	n2.start()
	p.answers(a, all...)
	p.heard(b)
	nettest.Run(
		t, n1.node, "nft",
		"add table inet tracks; add chain inet tracks passing { type filter hook forward priority 0; }; add rule inet tracks passing ct state new accept",
	)
	p.tracks(n2, peer1, a)
	a.pause(t)
	b.speaks(t, b.addrs[0])
	p.answers(b, all...)
	p.moves(0)
	time.Sleep(time.Second) // packets from the source node are ignored at first
	p.heard(a)
	b.pause(t)
	a.resume(t)
	a.speaks(t, a.addrs[1])
	p.answers(a, all...)
	b.del(t)
	p.answers(a, all...)

	c := p.vmPod(n2, "c", true)
	p.answers(a, all...)
	a.del(t)
	p.answers(c, all...)
	c.del(t)
	p.moves(0)
}
