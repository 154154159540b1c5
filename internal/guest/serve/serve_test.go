// SPDX-License-Identifier: Apache-2.0

package serve_test

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/insomniacslk/dhcp/dhcpv4"
	"github.com/insomniacslk/dhcp/dhcpv6"
	"golang.org/x/sys/unix"

	"github.com/weft-net/weft/internal/guest/handover"
	"github.com/weft-net/weft/internal/guest/serve"
	"github.com/weft-net/weft/internal/guest/sockets"
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/netns"
	"github.com/weft-net/weft/internal/nettest"
)

func TestMain(m *testing.M) { os.Exit(nettest.Main(m)) }

const guestMAC = "02:00:00:00:00:77"

// config is the configuration of a guest with masquerade binding.
func config() model.GuestConfig {
	return model.GuestConfig{
		Interface: "default", PodLink: "eth0", Link: "k6t-eth0", LinkMAC: "02:00:00:00:00:00",
		DHCP4: &model.GuestDHCP4{
			Address: netip.MustParsePrefix("10.0.2.2/24"), Server: netip.MustParseAddr("10.0.2.1"),
			Router: netip.MustParseAddr("10.0.2.1"), MTU: 1450,
		},
		DHCP6: &model.GuestDHCP6{Address: netip.MustParseAddr("fd10:0:2::2")},
		RA:    &model.GuestRA{Prefix: netip.MustParsePrefix("fd10:0:2::/120"), MTU: 1450},
	}
}

// world is a pod's bridge with a guest behind it.
func world(t *testing.T) (pod, guest *netns.NS) {
	t.Helper()
	pod, guest = nettest.NS(t, "pod"), nettest.NS(t, "guest")
	for _, line := range []string{
		"link add k6t-eth0 address 02:00:00:00:00:00 type bridge mcast_snooping 0", "link set k6t-eth0 addrgenmode none",
		"link set k6t-eth0 up",
		"addr add 10.0.2.1/24 dev k6t-eth0", "addr add fe80::1/64 dev k6t-eth0 nodad",
		"addr add fd10:0:2::1/120 dev k6t-eth0 nodad",
		"link add tap type veth peer name eth0 netns " + guest.Path(), "link set tap master k6t-eth0 up",
	} {
		nettest.IP(t, pod, line)
	}
	nettest.Run(t, guest, "ip", "link", "set", "eth0", "address", guestMAC)
	return pod, guest
}

// startServing serves a guest as weft-guest does, on sockets that were passed over a unix socket, until stop is called.
func startServing(t *testing.T, pod *netns.NS, g model.GuestConfig, dir string) (stop func()) {
	t.Helper()
	s, err := sockets.Open(pod, g)
	if err != nil {
		t.Fatal(err)
	}
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	server, client := end(t, pair[0]), end(t, pair[1])
	if err := handover.Send(server, []serve.Interface{{Guest: g, Sockets: s}}); err != nil {
		t.Fatal(err)
	}
	interfaces, err := handover.Receive(client)
	if err := errors.Join(err, s.Close()); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- serve.Config{StartedDir: dir, Log: slog.New(slog.DiscardHandler)}.Run(ctx, interfaces) }()
	return func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}

func end(t *testing.T, fd int) *net.UnixConn {
	t.Helper()
	f := os.NewFile(uintptr(fd), "end")
	defer f.Close()
	c, err := net.FileConn(f)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c.(*net.UnixConn)
}

// udp opens a client's socket in the guest.
func udp(t *testing.T, guest *netns.NS, network, at string) net.PacketConn {
	t.Helper()
	var conn net.PacketConn
	config := net.ListenConfig{Control: func(_, _ string, raw syscall.RawConn) (err error) {
		return errors.Join(raw.Control(func(fd uintptr) {
			err = errors.Join(unix.BindToDevice(int(fd), "eth0"),
				unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_BROADCAST, 1))
		}), err)
	}}
	err := guest.Do(func() (err error) {
		conn, err = config.ListenPacket(t.Context(), network, at)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// exchange sends until an answer comes: the first packets may meet a port that is not ready.
func exchange(t *testing.T, c net.PacketConn, message []byte, to net.Addr) []byte {
	t.Helper()
	buf := make([]byte, 9000)
	for range 60 {
		if _, err := c.WriteTo(message, to); err != nil {
			t.Fatal(err)
		}
		_ = c.SetReadDeadline(time.Now().Add(time.Second))
		n, _, err := c.ReadFrom(buf)
		if err == nil {
			return buf[:n]
		}
		if !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Fatal(err)
		}
	}
	t.Fatal("no answer")
	return nil
}

// TestGuest: on sockets that were passed over a unix socket, a guest gets addresses of both families and a default route;
// and again after the server restarted.
func TestGuest(t *testing.T) {
	pod, guest := world(t)
	nettest.Run(t, guest, "ip", "link", "set", "eth0", "addrgenmode", "eui64")
	dir := t.TempDir()
	for round := range 2 {
		stop := startServing(t, pod, config(), dir)
		nettest.Run(t, guest, "ip", "link", "set", "eth0", "up")
		c := udp(t, guest, "udp4", ":68")
		discover, err := dhcpv4.New(dhcpv4.WithHwAddr(net.HardwareAddr{2, 0, 0, 0, 0, 0x77}),
			dhcpv4.WithMessageType(dhcpv4.MessageTypeDiscover))
		if err != nil {
			t.Fatal(err)
		}
		offer, err := dhcpv4.FromBytes(exchange(t, c, discover.ToBytes(), &net.UDPAddr{IP: net.IPv4bcast, Port: 67}))
		if err != nil || offer.YourIPAddr.String() != "10.0.2.2" {
			t.Fatalf("round %d: %v %v", round, offer, err)
		}
		_ = c.Close()
		waitFor(t, "IPv6 default route", func() bool {
			return strings.Contains(nettest.Run(t, guest, "ip", "-6", "route", "show", "default"), "via fe80::1 dev eth0")
		})
		c6 := udp(t, guest, "udp6", "[fe80::ff:fe00:77%eth0]:546")
		solicit, err := dhcpv6.NewSolicit(net.HardwareAddr{2, 0, 0, 0, 0, 0x77})
		if err != nil {
			t.Fatal(err)
		}
		to := &net.UDPAddr{IP: net.ParseIP("ff02::1:2"), Port: 547, Zone: "eth0"}
		advertise, err := dhcpv6.MessageFromBytes(exchange(t, c6, solicit.ToBytes(), to))
		if err != nil || advertise.Options.OneIANA().Options.OneAddress().IPv6Addr.String() != "fd10:0:2::2" {
			t.Fatalf("round %d: %v %v", round, advertise, err)
		}
		_ = c6.Close()
		stop()
		nettest.Run(t, guest, "ip", "link", "set", "eth0", "down")
	}
	if _, err := os.Stat(filepath.Join(dir, "dhcp_started-eth0")); err != nil {
		t.Error(err)
	}
}

func waitFor(t *testing.T, what string, is func() bool) {
	t.Helper()
	for range 600 {
		if is() {
			return
		}
		time.Sleep(50 * time.Millisecond)
	}
	t.Fatalf("no %s", what)
}

// TestStarted: if another server's marker file exists, only router advertisements are sent.
func TestStarted(t *testing.T) {
	pod, guest := world(t)
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "dhcp_started-eth0"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	stop := startServing(t, pod, config(), dir)
	defer stop()
	nettest.Run(t, guest, "ip", "link", "set", "eth0", "up")
	waitFor(t, "IPv6 default route", func() bool {
		return strings.Contains(nettest.Run(t, guest, "ip", "-6", "route", "show", "default"), "via fe80::1 dev eth0")
	})
	c := udp(t, guest, "udp4", ":68")
	discover, err := dhcpv4.New(dhcpv4.WithHwAddr(net.HardwareAddr{2, 0, 0, 0, 0, 0x77}),
		dhcpv4.WithMessageType(dhcpv4.MessageTypeDiscover))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.WriteTo(discover.ToBytes(), &net.UDPAddr{IP: net.IPv4bcast, Port: 67}); err != nil {
		t.Fatal(err)
	}
	_ = c.SetReadDeadline(time.Now().Add(300 * time.Millisecond))
	if n, _, err := c.ReadFrom(make([]byte, 1500)); err == nil {
		t.Errorf("answered with %d bytes", n)
	}
}

// TestGone: Open reports a missing link.
func TestGone(t *testing.T) {
	pod := nettest.NS(t, "pod")
	_, err := sockets.Open(pod, config())
	if err == nil || !strings.HasPrefix(err.Error(), "sockets on k6t-eth0: ") {
		t.Error(err)
	}
}

// TestOtherServer: KubeVirt's servers for masquerade are bound to no link. They and weft's for another link of the pod can
// be started in either order; a second one of weft's for the same link cannot.
func TestOtherServer(t *testing.T) {
	for _, first := range []string{"weft", "KubeVirt"} {
		t.Run(first+" first", func(t *testing.T) {
			pod := nettest.NS(t, "pod")
			nettest.IP(t, pod, "link add k6t-eth0 type bridge")
			nettest.IP(t, pod, "link add k6t-other type bridge")
			other := config()
			other.Link = "k6t-other"
			ours := func(g model.GuestConfig) error {
				s, err := sockets.Open(pod, g)
				if err == nil {
					t.Cleanup(func() { _ = s.Close() })
				}
				return err
			}
			if first == "weft" {
				if err := ours(config()); err != nil {
					t.Fatal(err)
				}
			}
			shared := net.ListenConfig{Control: func(_, _ string, raw syscall.RawConn) error {
				var failed error
				err := raw.Control(func(fd uintptr) {
					failed = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_REUSEADDR, 1)
				})
				return errors.Join(err, failed)
			}}
			for network, addr := range map[string]string{"udp4": ":67", "udp6": "[::]:547"} {
				if err := pod.Do(func() error {
					c, err := shared.ListenPacket(t.Context(), network, addr)
					if err == nil {
						t.Cleanup(func() { _ = c.Close() })
					}
					return err
				}); err != nil {
					t.Errorf("KubeVirt: %v", err)
				}
			}
			if first == "KubeVirt" {
				if err := ours(config()); err != nil {
					t.Fatal(err)
				}
			}
			if err := ours(other); err != nil {
				t.Errorf("another link: %v", err)
			}
			if err := ours(config()); !errors.Is(err, unix.EADDRINUSE) {
				t.Errorf("a second server on the link: %v", err)
			}
		})
	}
}
