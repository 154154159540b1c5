// SPDX-License-Identifier: Apache-2.0

package export

import (
	"net"
	"net/netip"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// A connection is known while it is open, and for some time after its end, also if it could not be made.
func TestSockets(t *testing.T) {
	now := time.Unix(1000, 0)
	s := NewSockets(func() time.Time { return now })
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	to := l.Addr().(*net.TCPAddr).AddrPort()
	udp := netip.MustParseAddrPort("127.0.0.1:9")
	for _, c := range []struct {
		network string
		proto   uint8
		to      netip.AddrPort
	}{{"tcp", unix.IPPROTO_TCP, to}, {"udp", unix.IPPROTO_UDP, udp}} {
		conn, err := s.Dial(t.Context(), c.network, c.to.String())
		if err != nil {
			t.Fatal(err)
		}
		local, err := netip.ParseAddrPort(conn.LocalAddr().String())
		if err != nil {
			t.Fatal(err)
		}
		has := func(want bool, when string) {
			t.Helper()
			if s.Has(c.proto, local.Port(), c.to) != want {
				t.Errorf("%s %s: known %t", c.network, when, !want)
			}
		}
		has(true, "open")
		if s.Has(c.proto, local.Port()+1, c.to) || s.Has(c.proto, local.Port(), netip.AddrPortFrom(c.to.Addr(), 1)) {
			t.Errorf("%s: another connection is known", c.network)
		}
		now = now.Add(time.Hour)
		has(true, "open for an hour")
		_ = conn.Close()
		has(true, "just closed")
		now = now.Add(socketLinger)
		has(false, "closed")
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Dial(t.Context(), "tcp", to.String()); err == nil {
		t.Fatal("nobody listens")
	}
	refused := false
	for one := range s.all {
		refused = refused || one.to == to && s.Has(one.proto, one.port, one.to)
	}
	if len(s.all) != 1 || !refused {
		t.Errorf("a connection that was refused: %v", s.all)
	}
}
