// SPDX-License-Identifier: Apache-2.0

package policy_test

import (
	"errors"
	"io"
	"net"
	"net/netip"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weft-net/weft/internal/netns"
	"github.com/weft-net/weft/internal/nettest"
	"github.com/weft-net/weft/internal/node/policy"
)

// How long an answer is awaited: where one must come, also on a busy host, and where none should.
const long, short = 10 * time.Second, 300 * time.Millisecond

// echoes reports whether a connection works in both directions within the limit.
func echoes(c net.Conn, limit time.Duration) bool {
	_ = c.SetDeadline(time.Now().Add(limit))
	if _, err := c.Write([]byte("ping")); err != nil {
		return false
	}
	_, err := io.ReadFull(c, make([]byte, 4))
	return err == nil
}

// TestEstablished: a connection that a changed policy denies is deleted; one that it allows continues, and so do all
// with Keep.
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
	// The kernel tracks connections once a rule needs it: one that is older would be new to it later, and denied.
	w.manifest("tracked", strings.Replace(denyAll, "podSelector: {}", "podSelector: {matchLabels: {app: tracked}}", 1))
	tracked := w.pod("shop/tracked", "app: tracked")
	w.serve(tracked, 80)
	w.eventually("a rule needs tracking", func() bool {
		return w.Stats().Policies == 1 && !reaches(other.ns, tracked, 80)
	})
	dialed := func(from *pod) net.Conn {
		c, err := dial(from.ns, netip.AddrPortFrom(web.addr, 80), 5*time.Second)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		return c
	}
	good, bad := dialed(friend), dialed(other)
	if !echoes(good, long) || !echoes(bad, long) {
		t.Fatal("no connection")
	}
	w.manifest("friends", onlyFriends)
	w.eventually("the policy denies", func() bool { return !reaches(other.ns, web, 80) })
	if keep {
		if !echoes(good, long) || !echoes(bad, long) {
			t.Error("a connection was cut")
		}
		return
	}
	w.eventually("the connection is cut", func() bool { return w.Stats().Cut > 0 && !echoes(bad, short) })
	if !echoes(good, long) {
		t.Errorf("a connection that is allowed was cut:\n%s", ruleset())
	}
	w.object("shop/friend", `friend: "no"`, "n1")
	w.eventually("the friend's connection is cut", func() bool { return !echoes(good, short) })
}

// TestFinished: nothing is dropped of a connection that had ended when a policy denied it: its client may use the port again
// for one that policies allow by then.
func TestFinished(t *testing.T) {
	w := newWorld(t)
	w.start()
	web, other := w.pod("shop/web", "app: web"), w.pod("shop/other", "app: other")
	w.serve(web, 80)
	w.manifest("tracked", strings.Replace(denyAll, "podSelector: {}", "podSelector: {matchLabels: {app: tracked}}", 1))
	tracked := w.pod("shop/tracked", "app: tracked")
	w.serve(tracked, 80)
	w.eventually("a rule needs tracking", func() bool {
		return w.Stats().Policies == 1 && !reaches(other.ns, tracked, 80)
	})
	for _, reset := range []bool{true, false} {
		c, err := dial(other.ns, netip.AddrPortFrom(web.addr, 80), 5*time.Second)
		if err != nil {
			t.Fatal(err)
		}
		if !echoes(c, long) {
			t.Fatal("no connection")
		}
		if reset {
			err = c.(*net.TCPConn).SetLinger(0)
		}
		if err = errors.Join(err, c.Close()); err != nil {
			t.Fatal(err)
		}
	}
	w.eventually("both connections have ended", func() bool {
		out := nettest.Run(t, nil, "conntrack", "-L", "-d", web.addr.String())
		return strings.Contains(out, " CLOSE ") && strings.Contains(out, " TIME_WAIT ") && !strings.Contains(out, " ESTABLISHED ")
	})
	w.manifest("friends", onlyFriends)
	w.eventually("their entries are deleted", func() bool { return w.Stats().Cut >= 2 })
	if out := ruleset(); strings.Contains(out, "cut4") {
		t.Errorf("replies of connections that have ended are dropped:\n%s", out)
	}
}

// TestCutStaysCut: the peer of a deleted connection cannot create it again with its next packets, which would look
// like the start of a connection in the other direction, which policies allow. When policies allow it again, it continues.
func TestCutStaysCut(t *testing.T) {
	for _, c := range []struct {
		name, policy string
		interfaceOf  func(w *world, p *pod, n int) *pod
	}{
		{"routed", onlyFriends, func(_ *world, p *pod, _ int) *pod { return p }},
		{"port", onlyFastFriends, func(w *world, p *pod, n int) *pod { return w.ported(p, n) }},
		{"port that is routed to", onlyFastFriends, func(w *world, p *pod, n int) *pod {
			if p.Pod.Name == "other" {
				return p
			}
			q := w.ported(p, n)
			nettest.IP(w.t, q.ns, "route add 10.9.0.0/24 via 10.8.0.1")
			return q
		}},
		{"pod", onlyFastFriends, func(w *world, p *pod, n int) *pod { return w.bridged(p, n) }},
	} {
		t.Run(c.name, func(t *testing.T) { staysCut(t, c.policy, c.interfaceOf) })
	}
}

func staysCut(t *testing.T, denies string, interfaceOf func(w *world, p *pod, n int) *pod) {
	w := newWorld(t)
	w.start()
	// The kernel tracks connections once a rule asks for it.
	head, _, _ := strings.Cut(denies, "  ingress:\n")
	w.manifest("friends", head+"  ingress: [{}]\n")
	web := interfaceOf(w, w.pod("shop/web", "app: web"), 2)
	other := interfaceOf(w, w.pod("shop/other", "app: other"), 3)
	w.stream(web, 80)
	w.eventually("the first policy", func() bool { return w.Stats().Policies == 1 })
	w.eventually("a way", func() bool {
		_, err := nettest.Try(other.ns, "ping", "-c1", "-W1", web.addr.String())
		return err == nil
	})
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
	w.manifest("friends", denies)
	w.eventually("the connection is cut", func() bool { return w.Stats().Cut > 0 })
	w.eventually("what had arrived is read", func() bool { return !got(300 * time.Millisecond) })
	if got(2 * time.Second) { // TCP retransmits after 200 ms, 400 ms …
		t.Errorf("the other side has opened the connection again:\n%s", ruleset())
	}
	// Allowed again, it continues when its client sends, and not only when its replies are forgotten.
	w.manifest("friends", head+"  ingress: [{}]\n")
	w.eventually("the connection continues", func() bool {
		_, _ = c.Write([]byte("ask"))
		return got(300 * time.Millisecond)
	})
}

// TestResumed: a connection from a port whose earlier one was cut works at once when policies allow it again, before the
// agent has noticed, also while the server still has the earlier one. A packet that policies deny changes nothing for the
// earlier connection, and the new one is cut when policies deny it again.
func TestResumed(t *testing.T) {
	for _, c := range []struct {
		name, policy string
		interfaceOf  func(w *world, p *pod, n int) *pod
	}{
		{"routed", onlyFriends, func(_ *world, p *pod, _ int) *pod { return p }},
		{"pod", onlyFastFriends, func(w *world, p *pod, n int) *pod { return w.bridged(p, n) }},
	} {
		t.Run(c.name, func(t *testing.T) { resumed(t, c.policy, c.interfaceOf) })
	}
}

func resumed(t *testing.T, denies string, interfaceOf func(w *world, p *pod, n int) *pod) {
	w := newWorld(t)
	var blind atomic.Bool
	w.start(func(c *policy.Config) {
		after := c.After
		c.After = func(d time.Duration) <-chan time.Time {
			if blind.Load() && d >= time.Second {
				return nil // it does not look again for connections that policies allow
			}
			return after(d)
		}
	})
	head, _, _ := strings.Cut(denies, "  ingress:\n")
	allows := head + "  ingress: [{}]\n"
	w.manifest("friends", allows)
	web := interfaceOf(w, w.pod("shop/web", "app: web"), 2)
	other := interfaceOf(w, w.pod("shop/other", "app: other"), 3)
	w.serve(web, 80)
	w.stream(web, 81)
	w.eventually("the first policy", func() bool { return w.Stats().Policies == 1 })
	w.eventually("a way", func() bool {
		_, err := nettest.Try(other.ns, "ping", "-c1", "-W1", web.addr.String())
		return err == nil
	})
	connect := func(port uint16, limit time.Duration) (net.Conn, error) {
		var c net.Conn
		err := other.ns.Do(func() (err error) {
			d := net.Dialer{
				Timeout: limit, LocalAddr: net.TCPAddrFromAddrPort(netip.AddrPortFrom(other.addr, 40000+port)),
			}
			c, err = d.Dial("tcp4", netip.AddrPortFrom(web.addr, port).String())
			return err
		})
		if err == nil {
			t.Cleanup(func() { _ = c.Close() })
		}
		return c, err
	}
	old, err := connect(80, long)
	if err != nil {
		t.Fatal(err)
	}
	sent, err := connect(81, long)
	if err != nil {
		t.Fatal(err)
	}
	got := func(limit time.Duration) bool {
		_ = sent.SetReadDeadline(time.Now().Add(limit))
		n, _ := sent.Read(make([]byte, 1<<16))
		return n > 0
	}
	if !echoes(old, long) || !got(long) {
		t.Fatal("no connection")
	}
	blind.Store(true)
	w.manifest("friends", denies)
	w.eventually("both are cut", func() bool { return w.Stats().Cut >= 2 })
	w.eventually("what had arrived is read", func() bool { return !got(short) })
	// The client's end is gone without a word to the server, and a new one begins with the same ports.
	if err := errors.Join(old.(*net.TCPConn).SetLinger(0), old.Close()); err != nil {
		t.Fatal(err)
	}
	if _, err := connect(80, 2*time.Second); err == nil {
		t.Fatal("a connection that policies deny")
	}
	for _, ns := range []*netns.NS{nil, web.ns} {
		out, _ := nettest.Try(ns, "nft", "list", "ruleset")
		if _, set, _ := strings.Cut(out, "set resumed4"); strings.Contains(strings.Split(set, "\t}")[0], "elements") {
			t.Errorf("replies to a packet that policies deny would pass:\n%s", out)
		}
	}
	if got(2 * time.Second) {
		t.Errorf("the connection that was cut continues:\n%s", ruleset())
	}
	w.manifest("friends", allows)
	again, err := connect(80, time.Minute)
	if err != nil {
		t.Fatalf("no connection from the same port: %v\n%s", err, ruleset())
	}
	if !echoes(again, long) {
		t.Errorf("nothing comes back from the same port:\n%s", ruleset())
	}
	if got(short) {
		t.Error("the connection that was cut continues before its client has sent")
	}
	w.eventually("the other one continues", func() bool {
		_, _ = sent.Write([]byte("ask"))
		return got(short)
	})
	cut := w.Stats().Cut
	w.manifest("friends", denies)
	w.eventually("both are cut again", func() bool { return w.Stats().Cut >= cut+2 })
	w.eventually("what had arrived is read again", func() bool { return !got(short) })
	if got(2 * time.Second) {
		t.Errorf("the other side has opened the connection again:\n%s", ruleset())
	}
}

// stream sends to each client of a TCP port of the pod, without a request, until the client is unreachable.
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
