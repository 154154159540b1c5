// SPDX-License-Identifier: Apache-2.0

package tunnel_test

import (
	"crypto/rand"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/weft-net/weft/internal/nettest"
	"github.com/weft-net/weft/internal/node/tunnel"
	"github.com/weft-net/weft/internal/plan/mesh"
)

// TestErrorIsReported: an error names its tunnel; others run, and it is retried.
func TestErrorIsReported(t *testing.T) {
	nettest.Need(t, "tap")
	t.Cleanup(func() { goleak.VerifyNone(t) })
	ns := nettest.NS(t, "node")
	ip(t, ns, "link set lo up", "tuntap add good mode tun", "tuntap add ether mode tap", "tuntap add wg mode tun",
		"tuntap add busy mode tun")
	r := tunnel.New(tunnel.Config{
		NS: ns, Random: rand.Reader, Log: slog.New(slog.NewTextHandler(t.Output(), nil)), Now: time.Now, After: time.After,
	})
	t.Cleanup(r.Close)
	var taken net.PacketConn
	if err := ns.Do(func() (err error) {
		taken, err = net.ListenPacket("udp4", "127.0.0.1:8286")
		return err
	}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { taken.Close() })
	dir := t.TempDir()
	key, wrong := filepath.Join(dir, "key"), filepath.Join(dir, "wrong")
	for file, text := range map[string]string{key: "dwdtCnMYpX08FsFyUbJmRd9ML4frwJkqsXf7pR25LCo=", wrong: "no-key"} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	udp := func(link string, port uint16) mesh.Tunnel {
		return mesh.Tunnel{Backend: "udp", Link: link, Local: netip.AddrPortFrom(netip.MustParseAddr("127.0.0.1"), port)}
	}
	wireguard := func(key, psk, peer string) mesh.Tunnel {
		w := mesh.Tunnel{
			Backend: "wireguard", Link: "wg", MTU: 1420, KeyFile: key, PSKFile: psk,
			Local:   netip.MustParseAddrPort("[::]:51820"),
			Options: map[string]string{mesh.OptionUserSpace: "true"},
		}
		if peer != "" {
			w.Peers = []mesh.TunnelPeer{
				{
					Node: "n2", CIDR: netip.MustParsePrefix("10.244.2.0/24"), Endpoint: netip.MustParseAddrPort("192.168.0.2:1"),
					PublicKey: peer,
				},
			}
		}
		return w
	}
	good := udp("good", 8285)
	for _, c := range []struct {
		bad  mesh.Tunnel
		want string
	}{
		{udp("nowhere", 8287), "udp nowhere: link nowhere: tun device is missing"},
		{udp("ether", 8287), "udp ether: link ether: invalid argument"},
		{udp("busy", 8286), "udp busy: udp 127.0.0.1:8286: address already in use"},
		{
			mesh.Tunnel{Backend: "udp", Link: "busy", Local: netip.MustParseAddrPort("192.0.2.1:8285")},
			"udp busy: udp 192.0.2.1:8285: cannot assign requested address",
		},
		{mesh.Tunnel{Backend: "pigeon", Link: "coop"}, `pigeon coop: backend "pigeon" is unknown`},
		{
			wireguard(filepath.Join(dir, "none"), "", ""), "wireguard wg: wireguard: open " + filepath.Join(dir, "none") +
				": no such file or directory",
		},
		{
			wireguard(wrong, "", ""), "wireguard wg: wireguard: key file " + wrong +
				": no key: 32 bytes in base64 are wanted (delete the file, and a new key is created; its public key is published to the peers)",
		},
		{
			wireguard(key, wrong, ""), "wireguard wg: wireguard: key file " + wrong +
				": no key: 32 bytes in base64 are wanted (write the same key on all nodes; wg genpsk creates one)",
		},
		{wireguard(key, "", "abc"), "wireguard wg: node n2: no key: 32 bytes in base64 are wanted"},
	} {
		err := r.Keep(t.Context(), []mesh.Tunnel{c.bad, good})
		if err == nil || err.Error() != c.want {
			t.Errorf("told %v\nwant %s", err, c.want)
		}
		if err := r.Keep(t.Context(), []mesh.Tunnel{good}); err != nil {
			t.Errorf("what is left: %v", err)
		}
	}
	if out := nettest.Run(t, ns, "ip", "link"); strings.Contains(out, "nowhere") {
		t.Errorf("trying made a device:\n%s", out)
	}
	taken.Close()
	if err := r.Keep(t.Context(), []mesh.Tunnel{udp("busy", 8286), wireguard(key, "", ""), good}); err != nil {
		t.Errorf("what stood in the way is gone, and %v", err)
	}
	if err := r.Keep(t.Context(), nil); err != nil {
		t.Error(err)
	}
}
