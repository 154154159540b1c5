// SPDX-License-Identifier: Apache-2.0

package policy_test

import (
	"io"
	"net"
	"net/netip"
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

// A connection that a changed policy does not allow any more is cut; one that it allows goes on, and so do all of them where
// that is wished.
func TestEstablished(t *testing.T) {
	t.Run("cut", func(t *testing.T) { established(t, false) })
	t.Run("keep", func(t *testing.T) { established(t, true) })
}

func established(t *testing.T, keep bool) {
	w := newWorld(t)
	w.start(func(c *policy.Config) { c.Keep = keep })
	web, friend, other := w.pod("shop/web", "app: web"), w.pod("shop/friend", `friend: "yes"`), w.pod("shop/other", "app: other")
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
