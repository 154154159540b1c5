// SPDX-License-Identifier: Apache-2.0

package policy_test

import (
	"errors"
	"io"
	"net"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/weft-net/weft/internal/node/policy"
)

// echoes tells whether a connection still carries something there and back.
func echoes(c net.Conn) bool {
	_ = c.SetDeadline(time.Now().Add(300 * time.Millisecond))
	if _, err := c.Write([]byte("ping")); err != nil {
		return false
	}
	_, err := io.ReadFull(c, make([]byte, 4))
	return err == nil
}

// A connection that a changed policy does not allow any more is cut; one that it allows goes on, and so do all of them
// where that is wished.
func TestEstablished(t *testing.T) {
	t.Run("cut", func(t *testing.T) { established(t, false) })
	t.Run("keep", func(t *testing.T) { established(t, true) })
}

func established(t *testing.T, keep bool) {
	w := newWorld(t)
	w.start(func(c *policy.Config) { c.Keep = keep })
	web, friend, other := w.pod("shop/web", "app: web"), w.pod("shop/friend", `friend: "yes"`),
		w.pod("shop/other", "app: other")
	w.serve(web, 80)
	// The kernel tracks connections once a rule asks for it.
	w.manifest("tracked", strings.Replace(denyAll, "podSelector: {}", "podSelector: {matchLabels: {app: tracked}}", 1))
	w.pod("shop/tracked", "app: tracked")
	dialed := func(from *pod) net.Conn {
		c, err := dial(from.ns, netip.AddrPortFrom(web.addr, 80), 5*time.Second)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		return c
	}
	good, bad := dialed(friend), dialed(other)
	if !echoes(good) || !echoes(bad) {
		t.Fatal("no connection")
	}
	w.manifest("friends", onlyFriends)
	w.eventually("the policy denies", func() bool { return !reaches(other.ns, web, 80) })
	if keep {
		if !echoes(good) || !echoes(bad) {
			t.Error("a connection was cut")
		}
		return
	}
	w.eventually("the connection is cut", func() bool { return w.Stats().Cut > 0 && !echoes(bad) })
	if !echoes(good) {
		t.Errorf("a connection that is allowed was cut:\n%s", ruleset())
	}
	w.object("shop/friend", `friend: "no"`, "n1")
	w.eventually("the friend's connection is cut", func() bool { return !echoes(good) })
}

// The other side of a connection that was cut cannot open it anew by going on to send: that would look like the
// beginning of one the other way, which policies allow.
func TestCutStaysCut(t *testing.T) {
	w := newWorld(t)
	w.start()
	web, other := w.pod("shop/web", "app: web"), w.pod("shop/other", "app: other")
	w.stream(web, 80)
	w.manifest("tracked", strings.Replace(denyAll, "podSelector: {}", "podSelector: {matchLabels: {app: tracked}}", 1))
	w.pod("shop/tracked", "app: tracked")
	c, err := dial(other.ns, netip.AddrPortFrom(web.addr, 80), 5*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	got := func(limit time.Duration) bool {
		_ = c.SetReadDeadline(time.Now().Add(limit))
		n, _ := c.Read(make([]byte, 1<<16))
		return n > 0
	}
	if !got(time.Minute) {
		t.Fatal("nothing is sent")
	}
	w.manifest("friends", onlyFriends)
	w.eventually("the connection is cut", func() bool { return w.Stats().Cut > 0 })
	w.eventually("what had arrived is read", func() bool { return !got(300 * time.Millisecond) })
	if got(2 * time.Second) { // it is sent again after 200 ms, 400 ms ...
		t.Errorf("the other side has opened the connection anew:\n%s", ruleset())
	}
}

// stream sends to who connects to a TCP port of the pod, without being asked, until he cannot be reached.
func (w *world) stream(p *pod, port int) {
	w.t.Helper()
	var l net.Listener
	err := p.ns.Do(func() (err error) {
		l, err = net.ListenTCP("tcp4", &net.TCPAddr{Port: port})
		return err
	})
	if err != nil {
		w.t.Fatal(err)
	}
	ended := make(chan struct{})
	w.t.Cleanup(func() { close(ended); _ = l.Close() })
	go func() {
		c, err := l.Accept()
		if err != nil {
			return
		}
		defer func() { _ = c.Close() }()
		tick := time.NewTicker(10 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-ended:
				return
			case <-tick.C:
			}
			_ = c.SetWriteDeadline(time.Now().Add(time.Second))
			if _, err := c.Write([]byte("more")); err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
				return
			}
		}
	}()
}
