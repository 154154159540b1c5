// SPDX-License-Identifier: Apache-2.0

package policy_test

import (
	"net"
	"net/netip"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weft-net/weft/internal/nettest"
	"github.com/weft-net/weft/internal/state"
)

// talks has a pod send a word to another one's port 4000 all the time, from one port, until the test ends. It returns
// when the other one has answered: then the kernel takes the flow for a connection.
func (w *world) talks(from, to *pod, word string) {
	w.t.Helper()
	var c *net.UDPConn
	err := from.ns.Do(func() (err error) {
		c, err = net.ListenUDP("udp4", &net.UDPAddr{})
		return err
	})
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { _ = c.Close() })
	dst := netip.AddrPortFrom(to.addr, 4000)
	send := func() bool {
		_, err := c.WriteToUDPAddrPort([]byte(word), dst)
		return err == nil
	}
	var answer net.PacketConn
	if err := to.ns.Do(func() (err error) {
		answer, err = net.ListenPacket("udp4", ":4000")
		return err
	}); err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { _ = answer.Close() })
	w.eventually(word+": an answer", func() bool {
		send()
		_ = answer.SetReadDeadline(time.Now().Add(100 * time.Millisecond))
		buf := make([]byte, 100)
		n, back, err := answer.ReadFrom(buf)
		if err != nil {
			return false
		}
		_, _ = answer.WriteTo(buf[:n], back)
		_ = c.SetReadDeadline(time.Now().Add(100 * time.Millisecond))
		_, _, err = c.ReadFrom(buf)
		return err == nil
	})
	var ended atomic.Bool
	done := make(chan struct{})
	w.t.Cleanup(func() { ended.Store(true); <-done })
	go func() {
		defer close(done)
		for !ended.Load() {
			send()
			time.Sleep(time.Millisecond)
		}
	}()
}

// gone takes a pod away, in the order of a DEL.
func (w *world) gone(name string) {
	w.t.Helper()
	p := w.pods[name]
	nettest.IP(w.t, nil, "link del "+p.link)
	if err := w.Release(w.t.Context(), p.Attachment); err != nil {
		w.t.Fatal(err)
	}
	delete(w.pods, name)
}

// TestReleasedAddressIsFlushed: a connection to a pod that is gone is not one to the pod that has its address next.
func TestReleasedAddressIsFlushed(t *testing.T) {
	w := newWorld(t)
	w.start()
	w.manifest("friends", onlyFriends)
	other, friend := w.pod("shop/other", "app: other"), w.pod("shop/friend", `friend: "yes"`)
	web := w.pod("shop/web", "app: web")
	w.serve(web, 80)
	w.eventually("the policy holds", func() bool { return reaches(friend.ns, web, 80) && !reaches(other.ns, web, 80) })
	inn := w.pod("shop/inn", "app: inn")
	w.talks(other, inn, "to the inn")
	w.gone("shop/inn")
	vault := w.pod("shop/vault", "app: web")
	if vault.addr != inn.addr {
		t.Fatalf("the next pod has %s, want %s", vault.addr, inn.addr)
	}
	ear := nettest.Listen(t, vault.ns, 4000)
	if ear.Receives("to the inn", time.Second, func() {}) {
		t.Errorf("a pod that only friends may reach gets what was said to the pod before\n%s", ruleset())
	}
	c, err := net.ListenPacket("udp4", "10.9.0.1:0") // the node reaches its own pods
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	if !ear.Receives("to the vault", 20*time.Second, func() {
		_, _ = c.WriteTo([]byte("to the vault"), net.UDPAddrFromAddrPort(netip.AddrPortFrom(vault.addr, 4000)))
	}) {
		t.Error("the pod gets nothing at all")
	}
}

// TestMovedAddressIsNotFlushed: the connections of a VM that runs on another node by now are not forgotten when the
// pod goes in which it ran.
func TestMovedAddressIsNotFlushed(t *testing.T) {
	w := newWorld(t)
	w.start()
	w.manifest("friends", onlyFriends)
	other := w.pod("shop/other", "app: other")
	w.pod("shop/web", "app: web")
	vm, inn := w.pod("shop/vm", "app: inn"), w.pod("shop/inn", "app: inn")
	w.talks(other, vm, "to the VM")
	w.talks(other, inn, "to the inn")
	tracked := func(to netip.Addr) bool {
		t.Helper()
		found, err := w.host.FindConntrack([]state.ConntrackPeer{{Addr: to, Responds: true}}, func(state.Connection) bool { return true })
		if err != nil {
			t.Fatal(err)
		}
		return len(found) > 0
	}
	left := vm.WorkloadEndpoint
	left.Standby = true
	if err := w.Admit(t.Context(), left); err != nil {
		t.Fatal(err)
	}
	w.gone("shop/vm")
	// Nothing is tracked again: what is dropped by its route is forgotten at once.
	nettest.IP(t, nil, "link set "+inn.link+" down")
	nettest.IP(t, nil, "route add blackhole "+inn.addr.String()+"/32")
	t.Cleanup(func() { _, _ = nettest.Try(nil, "ip", "route", "del", "blackhole", inn.addr.String()+"/32") })
	if err := w.Release(t.Context(), inn.Attachment); err != nil {
		t.Fatal(err)
	}
	w.eventually("the connections of a pod that is gone are forgotten", func() bool { return !tracked(inn.addr) })
	if !tracked(vm.addr) {
		t.Error("those of a VM that left are forgotten, too")
	}
}
