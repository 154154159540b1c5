// SPDX-License-Identifier: Apache-2.0

package tunnel

import (
	"crypto/rand"
	"fmt"
	"log/slog"
	"net/netip"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.zx2c4.com/wireguard/device"

	"github.com/weft-net/weft/internal/netns"
	"github.com/weft-net/weft/internal/nettest"
	"github.com/weft-net/weft/internal/plan/mesh"
)

// side is one of two nodes that are each other's WireGuard peers.
type side struct {
	ns     *netns.NS
	r      *Runner
	tunnel mesh.Tunnel
}

// pair returns two nodes that reach each other, without a device yet.
func pair(t *testing.T) [2]side {
	t.Helper()
	nettest.Need(t, "tap")
	sides := [2]side{{ns: nettest.NS(t, "one")}, {ns: nettest.NS(t, "two")}}
	nettest.IP(t, sides[0].ns, "link add eth0 type veth peer name eth0 netns "+sides[1].ns.Path())
	dir := t.TempDir()
	var keys []string
	for i := range sides {
		s, file := &sides[i], filepath.Join(dir, fmt.Sprint(i))
		private, err := readOrGeneratePrivateKey(file, rand.Reader)
		if err != nil {
			t.Fatal(err)
		}
		public, err := publicKey(private)
		if err != nil {
			t.Fatal(err)
		}
		keys = append(keys, public.String())
		s.tunnel = mesh.Tunnel{
			Backend: "wireguard", Link: "wg", MTU: 1420, KeyFile: file,
			Local: netip.MustParseAddrPort("[::]:51820"), Options: map[string]string{mesh.OptionUserSpace: "true"},
		}
		for _, c := range []string{
			fmt.Sprintf("addr add 192.168.0.%d/24 dev eth0", i+1), "link set eth0 up", "tuntap add wg mode tun", "link set wg up",
		} {
			nettest.IP(t, s.ns, c)
		}
		s.r = New(Config{
			NS: s.ns, Random: rand.Reader, Log: slog.New(slog.NewTextHandler(t.Output(), nil)), Now: time.Now, After: time.After,
		})
		t.Cleanup(s.r.Close)
	}
	for i := range sides {
		sides[i].tunnel.Peers = []mesh.TunnelPeer{{
			Node: "other", CIDR: netip.MustParsePrefix("10.244.0.0/16"), PublicKey: keys[1-i],
			Endpoint: netip.AddrPortFrom(netip.AddrFrom4([4]byte{192, 168, 0, byte(2 - i)}), 51820),
		}}
	}
	return sides
}

// keep starts the device, with the peer.
func (s side) keep(t *testing.T) {
	t.Helper()
	if err := s.r.Keep(t.Context(), []mesh.Tunnel{s.tunnel}); err != nil {
		t.Fatal(err)
	}
}

// session returns when the last session began; zero is never.
func (s side) session(t *testing.T) time.Time {
	t.Helper()
	text, err := s.r.running["wg"].tunnel.(*userspace).dev.IpcGet()
	if err != nil {
		t.Fatal(err)
	}
	var sec, nsec int64
	for line := range strings.Lines(text) {
		_, _ = fmt.Sscanf(line, "last_handshake_time_sec=%d", &sec)
		_, _ = fmt.Sscanf(line, "last_handshake_time_nsec=%d", &nsec)
	}
	if sec == 0 {
		return time.Time{}
	}
	return time.Unix(sec, nsec)
}

// established waits for a session.
func (s side) established(t *testing.T) time.Time {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		if at := s.session(t); !at.IsZero() {
			return at
		}
		if time.Now().After(deadline) {
			t.Fatal("no session after a minute")
		}
	}
}

// TestSessionWithoutPackets: a device that replaces another one begins sessions by itself. Its peer, whose packets it
// cannot decrypt, would do so only after 15 s, and this test sends none.
func TestSessionWithoutPackets(t *testing.T) {
	sides := pair(t)
	for range 2 {
		for _, s := range sides {
			s.keep(t)
		}
		sides[0].established(t)
		if err := sides[0].r.Keep(t.Context(), nil); err != nil { // the next round has another device
			t.Fatal(err)
		}
	}
}

// TestLostInitiations: two new nodes whose first initiations are lost, as they are when each sends one before the other
// knows it, or when they cross, have a session before WireGuard repeats one by itself (device.RekeyTimeout).
func TestLostInitiations(t *testing.T) {
	const rounds = 5 // more than one: on a busy host the repetition may come too late
	for range rounds {
		sides := pair(t)
		for _, s := range sides {
			nettest.Run(t, s.ns, "nft", "add table ip cut; add chain ip cut in { type filter hook input priority 0; }; add rule ip cut in counter drop")
		}
		began := time.Now()
		for _, s := range sides {
			s.keep(t)
		}
		for _, s := range sides {
			for deadline := time.Now().Add(time.Minute); strings.Contains(nettest.Run(t, s.ns, "nft", "list table ip cut"), "packets 0 "); {
				if time.Now().After(deadline) {
					t.Fatal("no initiation after a minute")
				}
			}
			nettest.Run(t, s.ns, "nft", "delete table ip cut")
		}
		at := sides[0].established(t)
		t.Logf("session %v after the peers were set", at.Sub(began))
		if at.Sub(began) < device.RekeyTimeout {
			return
		}
	}
	t.Errorf("in %d rounds no session began within %v", rounds, device.RekeyTimeout)
}
