// SPDX-License-Identifier: Apache-2.0

package tunnel

import (
	"crypto/rand"
	"log/slog"
	"net/netip"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/weft-net/weft/internal/netns"
	"github.com/weft-net/weft/internal/nettest"
	"github.com/weft-net/weft/internal/plan/mesh"
)

// TestSessionWithoutPackets: a device that replaces another one begins sessions by itself. Its peer, whose packets it
// cannot decrypt, would do so only after 15 s, and this test sends none.
func TestSessionWithoutPackets(t *testing.T) {
	nettest.Need(t, "tap")
	one, two := nettest.NS(t, "one"), nettest.NS(t, "two")
	nettest.IP(t, one, "link add eth0 type veth peer name eth0 netns "+two.Path())
	dir := t.TempDir()
	type side struct {
		r      *Runner
		tunnel mesh.Tunnel
	}
	sides := make([]side, 2)
	var keys []string
	for i, ns := range []string{"one", "two"} {
		private, err := readOrGeneratePrivateKey(filepath.Join(dir, ns), rand.Reader)
		if err != nil {
			t.Fatal(err)
		}
		public, err := publicKey(private)
		if err != nil {
			t.Fatal(err)
		}
		keys = append(keys, public.String())
		sides[i].tunnel = mesh.Tunnel{
			Backend: "wireguard", Link: "wg", MTU: 1420, KeyFile: filepath.Join(dir, ns),
			Local: netip.MustParseAddrPort("[::]:51820"), Options: map[string]string{mesh.OptionUserSpace: "true"},
		}
	}
	addrs := []string{"192.168.0.1", "192.168.0.2"}
	for i, space := range []*netns.NS{one, two} {
		own, other := addrs[i], addrs[1-i]
		for _, c := range []string{"addr add " + own + "/24 dev eth0", "link set eth0 up", "tuntap add wg mode tun", "link set wg up"} {
			nettest.IP(t, space, c)
		}
		sides[i].tunnel.Peers = []mesh.TunnelPeer{{
			Node: "other", CIDR: netip.MustParsePrefix("10.244.0.0/16"), Endpoint: netip.AddrPortFrom(netip.MustParseAddr(other), 51820),
			PublicKey: keys[1-i],
		}}
		sides[i].r = New(Config{
			NS: space, Random: rand.Reader, Log: slog.New(slog.NewTextHandler(t.Output(), nil)), Now: time.Now, After: time.After,
		})
	}
	defer func() {
		for _, s := range sides {
			s.r.Close()
		}
	}()
	session := func(s side) bool {
		text, err := s.r.running["wg"].tunnel.(*userspace).dev.IpcGet()
		if err != nil {
			t.Fatal(err)
		}
		return strings.Contains(text, "last_handshake_time_sec=") && !strings.Contains(text, "last_handshake_time_sec=0\n")
	}
	for round := range 2 {
		for _, s := range sides {
			if err := s.r.Keep(t.Context(), []mesh.Tunnel{s.tunnel}); err != nil {
				t.Fatal(err)
			}
		}
		for deadline := time.Now().Add(time.Minute); !session(sides[0]); time.Sleep(10 * time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatalf("round %d: no session after a minute", round)
			}
		}
		if err := sides[0].r.Keep(t.Context(), nil); err != nil { // the next round has another device
			t.Fatal(err)
		}
	}
}
