// SPDX-License-Identifier: Apache-2.0

package attach_test

import (
	"errors"
	"net"
	"net/netip"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weft-net/weft/internal/endpoint/attach"
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/netns"
	"github.com/weft-net/weft/internal/nettest"
	"github.com/weft-net/weft/internal/plan/plugin"
)

// What keeps a pod from speaking in others' names stays until its link is down: nothing that it sends under another's
// address while it is detached arrives.
func TestRoutedSourceUntilTheEnd(t *testing.T) {
	n := routedNode(t)
	b, second := n.routedPod(calico, "web-1")
	to := second.IPs[0].Address.Addr()
	arrived := count(t, b.Netns, to)
	for range 8 {
		a, first := n.routedPod(calico, "web-0")
		nettest.Run(t, a.Netns, "ip", "addr", "add", "10.8.0.77/32", "dev", "eth0")
		nettest.Run(t, nil, "ip", "route", "replace", "10.8.0.77", "dev", plugin.CalicoHostName(a.Request))
		stop := flood(t, a.Netns, netip.MustParseAddr("10.8.0.77"), to)
		if err := n.Del(t.Context(), a); err != nil {
			t.Error(err)
		}
		stop()
		_ = first
	}
	if got := arrived(); got != 0 {
		t.Errorf("%d packets under another pod's address arrived", got)
	}
	if err := n.Del(t.Context(), b); err != nil {
		t.Error(err)
	}
	n.clean("DEL")
}

const floodPort = 9999

// count counts the datagrams that arrive in a namespace until it is called.
func count(t *testing.T, ns *netns.NS, at netip.Addr) (arrived func() int64) {
	t.Helper()
	var c net.PacketConn
	if err := ns.Do(func() (err error) {
		c, err = net.ListenPacket("udp", netip.AddrPortFrom(at, floodPort).String())
		return err
	}); err != nil {
		t.Fatal(err)
	}
	var n atomic.Int64
	done := make(chan struct{})
	go func() {
		defer close(done)
		buf := make([]byte, 64)
		for {
			if _, _, err := c.ReadFrom(buf); err != nil {
				return
			}
			n.Add(1)
		}
	}()
	return func() int64 { _ = c.Close(); <-done; return n.Load() }
}

// flood sends datagrams from an address of a namespace until it is stopped. It returns when the first have left.
func flood(t *testing.T, ns *netns.NS, from, to netip.Addr) (stop func()) {
	t.Helper()
	var c net.Conn
	if err := ns.Do(func() (err error) {
		d := net.Dialer{LocalAddr: net.UDPAddrFromAddrPort(netip.AddrPortFrom(from, 0))}
		c, err = d.DialContext(t.Context(), "udp", netip.AddrPortFrom(to, floodPort).String())
		return err
	}); err != nil {
		t.Fatal(err)
	}
	var halt atomic.Bool
	started, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for i := 0; !halt.Load(); i++ {
			if i == 100 {
				close(started)
			}
			if _, err := c.Write([]byte("x")); err != nil && i > 100 && !errors.Is(err, net.ErrClosed) {
				time.Sleep(50 * time.Microsecond) // there is no way any more
			}
		}
	}()
	<-started
	return func() { halt.Store(true); <-done; _ = c.Close() }
}

// An unmanaged or floating address of a pod is unique on the node: it is not allocated by IPAM, not another pod's
// unmanaged address and not the node's; and IPAM allocates no address that is in use as an unmanaged one.
func TestRoutedUnmanagedAddresses(t *testing.T) {
	const brings, floats = "cni.projectcalico.org/ipAddrsNoIpam", "cni.projectcalico.org/floatingIPs"
	n, _ := wishingNode(t)
	live := n.saying(calicoOpen, "live", "cni.projectcalico.org/ipAddrs", `["10.8.0.50"]`)
	unmanaged := n.saying(calicoOpen, "brought", brings, `["10.8.0.60"]`, floats, `["198.51.100.7"]`)
	n.add(live)
	n.add(unmanaged)
	refused := func(what string) {
		t.Helper()
		for name, c := range map[string]struct {
			says []string
			code model.Code
			want string
		}{
			"IPAM's": {
				[]string{brings, `["10.8.0.50"]`}, model.CodeInUse, "address 10.8.0.50 is taken by pod default/live",
			},
			"IPAM's as floating": {
				[]string{floats, `["10.8.0.50"]`}, model.CodeInUse, "address 10.8.0.50 is taken by pod default/live",
			},
			"another's": {
				[]string{brings, `["10.8.0.60"]`}, model.CodeInUse, "address 10.8.0.60 is taken by pod default/brought",
			},
			"another's floating": {
				[]string{brings, `["198.51.100.7"]`}, model.CodeInUse, "address 198.51.100.7 is taken by pod default/brought",
			},
			"another's by IPAM": {
				[]string{"cni.projectcalico.org/ipAddrs", `["10.8.0.60"]`},
				model.CodeInUse,
				"address 10.8.0.60 is taken by pod default/brought",
			},
			"the node's":          {[]string{brings, `["192.0.2.7"]`}, model.CodeInUse, "192.0.2.7 is the node's own, on lo"},
			"the node's floating": {[]string{floats, `["192.0.2.7"]`}, model.CodeInUse, "192.0.2.7 is the node's own, on lo"},
			"the gateway's": {
				[]string{brings, `["169.254.1.1"]`}, model.CodeInvalidConf, `"169.254.1.1" is not a host address`,
			},
		} {
			_, err := n.Add(t.Context(), n.saying(calicoOpen, "new", c.says...))
			wantCode(t, what+": "+name, err, c.code, c.want)
		}
	}
	refused("living")
	if report, err := attach.New(n.cfg).Recover(t.Context()); err != nil || report.Kept != 2 {
		t.Errorf("%s %v", report, err)
	}
	n.Attacher = attach.New(n.cfg)
	if _, err := n.Recover(t.Context()); err != nil {
		t.Error(err)
	}
	refused("after a restart")
	if err := errors.Join(n.Del(t.Context(), live), n.Del(t.Context(), unmanaged)); err != nil {
		t.Error(err)
	}
	n.drain()
	again := n.saying(calicoOpen, "new", brings, `["10.8.0.60"]`)
	other := n.saying(calicoOpen, "other", "cni.projectcalico.org/ipAddrs", `["10.8.0.50"]`)
	n.add(again)
	n.add(other)
	if err := errors.Join(n.Del(t.Context(), again), n.Del(t.Context(), other)); err != nil {
		t.Error(err)
	}
	n.clean("DEL")
}

// A connection that went to a floating IP while it led nowhere, or elsewhere, goes to its pod from the first packet on.
func TestRoutedFloatingAtOnce(t *testing.T) {
	n, _ := wishingNode(t)
	b := n.saying(calicoOpen, "web-1", "cni.projectcalico.org/ipAddrs", `["10.8.0.34"]`)
	n.add(b)
	ext := netip.MustParseAddr("198.51.100.7")
	world := nettest.NS(t, "world")
	nettest.Run(t, nil, "ip", "link", "add", "out0", "up", "type", "veth", "peer", "name", "in0", "netns", world.Path())
	defer nettest.Run(t, nil, "ip", "link", "del", "out0")
	nettest.Run(t, world, "ip", "link", "set", "in0", "up")
	nettest.Run(t, nil, "ip", "route", "add", "198.51.100.7", "dev", "out0")
	nettest.Run(t, nil, "ip", "neigh", "add", "198.51.100.7", "lladdr", "02:00:00:00:00:07", "dev", "out0")
	for _, words := range []string{
		"add table ip tracks", "add chain ip tracks everything { type filter hook prerouting priority 0 ; }",
		"add rule ip tracks everything ct state new counter",
	} {
		nettest.Run(t, nil, "nft", words)
	}
	stop := flood(t, b.Netns, netip.MustParseAddr("10.8.0.34"), ext) // it is tracked, and leads into the world
	defer stop()
	a := n.saying(calicoOpen, "web-0", "cni.projectcalico.org/floatingIPs", `["198.51.100.7"]`,
		"cni.projectcalico.org/ipAddrs", `["10.8.0.33"]`)
	n.add(a)
	arrived := make(chan struct{})
	go func() {
		defer close(arrived)
		_ = a.Netns.Do(func() error {
			c, err := net.ListenPacket("udp", netip.AddrPortFrom(netip.MustParseAddr("10.8.0.33"), floodPort).String())
			if err != nil {
				return err
			}
			defer func() { _ = c.Close() }()
			_ = c.SetReadDeadline(time.Now().Add(time.Minute))
			if _, _, err := c.ReadFrom(make([]byte, 64)); err != nil {
				t.Errorf("nothing arrives at the pod: %v", err)
			}
			return nil
		})
	}()
	<-arrived
	stop()
	if err := errors.Join(n.Del(t.Context(), a), n.Del(t.Context(), b)); err != nil {
		t.Error(err)
	}
	n.drain()
}
