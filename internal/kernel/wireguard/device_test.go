// SPDX-License-Identifier: Apache-2.0

package wireguard

import (
	"bytes"
	"crypto/ecdh"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"golang.zx2c4.com/wireguard/wgctrl/wgtypes"

	"github.com/weft-net/weft/internal/netns"
	"github.com/weft-net/weft/internal/nettest"
)

func TestMain(m *testing.M) { os.Exit(nettest.Main(m)) }

func always(PublicKey) bool { return true }

func never(PublicKey) bool { return false }

func secret(n byte) Secret { return Secret{0: n << 3, 31: 64} }

func public(t *testing.T, s Secret) PublicKey {
	t.Helper()
	k, err := ecdh.X25519().NewPrivateKey(s[:])
	if err != nil {
		t.Fatal(err)
	}
	return PublicKey(k.PublicKey().Bytes())
}

// A secret is never printed.
func TestSecretsAreNotPrinted(t *testing.T) {
	c := Config{Private: Secret{1, 2, 3}, Shared: Secret{4, 5, 6}}
	var b bytes.Buffer
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%x", "%d", "%q"} {
		fmt.Fprintf(&b, verb+"\n", c)
		fmt.Fprintf(&b, verb+"\n", &c)
		fmt.Fprintf(&b, verb+"\n", c.Private)
	}
	slog.New(slog.NewTextHandler(&b, nil)).Info("x", "config", c, "key", c.Private)
	for _, shown := range []string{"AQID", "010203", "1 2 3", "0x1, 0x2", "1, 2, 3", "BAUG"} {
		if strings.Contains(b.String(), shown) {
			t.Errorf("%q is shown:\n%s", shown, b.String())
		}
	}
	if _, err := ParseKey("secret-but-no-key"); err == nil || strings.Contains(err.Error(), "secret-but") {
		t.Errorf("a wrong key: %v", err)
	}
}

// Only differences are written.
func TestDiff(t *testing.T) {
	peer := func(n byte, endpoint string, allowed ...string) Peer {
		p := Peer{Key: PublicKey{n}, Endpoint: netip.MustParseAddrPort(endpoint)}
		for _, a := range allowed {
			p.Allowed = append(p.Allowed, netip.MustParsePrefix(a))
		}
		return p
	}
	have := func(psk byte, p ...Peer) *wgtypes.Device {
		d := &wgtypes.Device{PrivateKey: wgtypes.Key{9}, ListenPort: 51820}
		for _, p := range p {
			o := wgtypes.Peer{
				PublicKey: wgtypes.Key(p.Key), PresharedKey: wgtypes.Key{psk}, PersistentKeepaliveInterval: 25 * time.Second,
				Endpoint: net.UDPAddrFromAddrPort(p.Endpoint),
			}
			for _, a := range p.Allowed {
				o.AllowedIPs = append(o.AllowedIPs, net.IPNet{
					IP: a.Addr().AsSlice(), Mask: net.CIDRMask(a.Bits(), a.Addr().BitLen()),
				})
			}
			d.Peers = append(d.Peers, o)
		}
		return d
	}
	a, b := peer(1, "192.168.0.1:1", "10.1.0.0/24", "fd01::/64"), peer(2, "[fd00::2]:2", "10.2.0.0/24")
	turned := peer(1, "192.168.0.1:1", "fd01::/64", "10.1.0.0/24")
	roamed := peer(1, "192.168.0.9:1", "10.1.0.0/24", "fd01::/64")
	want := Config{Private: Secret{9}, Port: 51820, Keepalive: 25, Peers: []Peer{a, b}}
	for _, c := range []struct {
		name      string
		have      *wgtypes.Device
		endpoints bool
		peers     int // written; -1: nothing is
	}{
		{"the same", have(0, a, b), true, -1},
		{"in another order", have(0, b, turned), true, -1},
		{"one is missing", have(0, a), true, 1},
		{"one too many", have(0, a, b, peer(3, "1.1.1.1:1")), true, 1},
		{"a peer has moved", have(0, roamed, b), false, -1},
		{"a peer is said to be elsewhere", have(0, roamed, b), true, 1},
		{"other addresses", have(0, peer(1, "192.168.0.1:1", "10.1.0.0/24"), b), true, 1},
		{"another shared key", have(5, a, b), true, 2},
	} {
		got, differs := diff(want, c.have, func(PublicKey) bool { return c.endpoints })
		if differs != (c.peers >= 0) || differs && len(got.Peers) != c.peers {
			t.Errorf("%s: %t, %d peers", c.name, differs, len(got.Peers))
		}
	}
	if got, differs := diff(want, &wgtypes.Device{}, never); !differs || got.PrivateKey == nil ||
		*got.ListenPort != 51820 || len(got.Peers) != 2 {
		t.Errorf("a fresh device: %t, %d peers", differs, len(got.Peers))
	}
}

// answers waits until addr replies to a ping from ns. A first handshake may be lost (the other end has no address yet,
// or both begin at once), and the next one follows after WireGuard's REKEY_TIMEOUT of five seconds and some jitter.
func answers(t *testing.T, ns *netns.NS, addr string) {
	t.Helper()
	const tries = 60
	var out string
	var err error
	for range tries {
		if out, err = nettest.Try(ns, "ping", "-n", "-c1", "-W1", addr); err == nil {
			return
		}
	}
	t.Fatalf("%s does not answer after %d pings: %v\n%s", addr, tries, err, out)
}

// Two devices of the kernel carry packets; a second Set writes nothing, and external changes are repaired.
func TestWireguardDevice(t *testing.T) {
	nettest.Need(t, "wireguard")
	a, b := nettest.NS(t, "a"), nettest.NS(t, "b")
	if ok, err := Supported(a); err != nil || !ok {
		t.Fatalf("the kernel makes such devices, and is said to have none: %v", err)
	}
	nettest.Run(t, a, "ip", "link", "add", "eth0", "type", "veth", "peer", "name", "eth0", "netns", b.Path())
	configs := map[byte]Config{}
	for n, ns := range map[byte]*netns.NS{1: a, 2: b} {
		o := 3 - n
		configs[n] = Config{
			Private: secret(n), Shared: Secret{7}, Port: 51820, Keepalive: 25, Peers: []Peer{{
				Key: public(t, secret(o)), Endpoint: netip.MustParseAddrPort(fmt.Sprintf("192.168.0.%d:51820", o)),
				Allowed: []netip.Prefix{
					netip.MustParsePrefix(fmt.Sprintf("10.42.%d.0/24", o)), netip.MustParsePrefix(fmt.Sprintf("fd42:%d::/64", o)),
				},
			}},
		}
		for _, line := range []string{
			"link set lo up", "link set eth0 up", fmt.Sprintf("addr add 192.168.0.%d/24 dev eth0", n),
			"link add wg0 type wireguard",
			fmt.Sprintf("addr add 10.42.%d.1/16 dev wg0", n), "link set wg0 up",
		} {
			nettest.IP(t, ns, line)
		}
		if written, err := Set(ns, "wg0", configs[n], always); err != nil || !written {
			t.Fatalf("first Set: %t %v", written, err)
		}
	}
	answers(t, a, "10.42.2.1")
	traffic, err := Counted(a, "wg0")
	if peer := traffic[public(t, secret(2))]; err != nil || len(traffic) != 1 || peer.Received == 0 || peer.Sent == 0 {
		t.Errorf("traffic %v, %v", traffic, err)
	}
	if written, err := Set(a, "wg0", configs[1], never); err != nil || written {
		t.Errorf("second Set: written %t, %v", written, err)
	}
	spoilt := configs[1]
	spoilt.Peers = []Peer{
		{
			Key: PublicKey{1}, Endpoint: netip.MustParseAddrPort("192.168.0.7:7"),
			Allowed: []netip.Prefix{netip.MustParsePrefix("10.42.2.0/24")},
		},
	}
	if _, err := Set(a, "wg0", spoilt, always); err != nil {
		t.Fatal(err)
	}
	if written, err := Set(a, "wg0", configs[1], always); err != nil || !written {
		t.Errorf("spoilt, then Set: written %t, %v", written, err)
	}
	answers(t, a, "10.42.2.1")
	if _, err := Counted(a, "wg1"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the traffic of a device that is not there: %v", err)
	}
	if _, err := Set(a, "wg1", configs[1], always); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a device that is not there: %v", err)
	}
}
