// SPDX-License-Identifier: Apache-2.0

package fdserver

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/weft-net/weft/internal/guest/handover"
	"github.com/weft-net/weft/internal/guest/serve"
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/netns"
	"github.com/weft-net/weft/internal/nettest"
)

const dialAs = "WEFT_TEST_DIAL"

func TestMain(m *testing.M) {
	if socket := os.Getenv(dialAs); socket != "" {
		conn, err := net.Dial("unix", socket)
		if err == nil {
			err = handover.WaitHello(conn.(*net.UnixConn))
		}
		fmt.Println(err)
		os.Exit(0)
	}
	os.Exit(nettest.Main(m))
}

// world is a pod with two links and the server for it.
type world struct {
	*testing.T
	pod *netns.NS
	*Server
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{T: t, pod: nettest.NS(t, "pod")}
	for _, name := range []string{"k6t-eth0", "k6t-blue"} {
		nettest.Run(t, w.pod, "ip", "link", "add", name, "type", "bridge")
		nettest.Run(t, w.pod, "ip", "link", "set", name, "up")
	}
	before := goleak.IgnoreCurrent()
	var err error
	if w.Server, err = Listen(w.pod, "@weft-guest", 107, slog.New(slog.NewTextHandler(t.Output(), nil))); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- w.Server.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		if err := goleak.Find(before); err != nil {
			t.Error(err)
		}
	})
	return w
}

func guestOn(link string) model.GuestConfig {
	return model.GuestConfig{
		Interface: link, Link: link, DHCP4: &model.GuestDHCP4{
			Address: netip.MustParsePrefix("10.0.2.2/24"), Server: netip.MustParseAddr("10.0.2.1"),
		},
	}
}

// dial connects as a weft-guest does.
func (w *world) dial() *net.UnixConn {
	w.Helper()
	var conn net.Conn
	err := w.pod.Do(func() (err error) {
		conn, err = net.DialUnix("unix", nil, &net.UnixAddr{Name: "@weft-guest", Net: "unix"})
		return err
	})
	if err != nil {
		w.Fatal(err)
	}
	w.Cleanup(func() { _ = conn.Close() })
	_ = conn.SetDeadline(time.Now().Add(30 * time.Second))
	return conn.(*net.UnixConn)
}

// receive receives one hand-over.
func (w *world) receive(c *net.UnixConn) []serve.Interface {
	w.Helper()
	interfaces, err := handover.Receive(c)
	if err != nil {
		w.Fatal(err)
	}
	w.Cleanup(func() {
		for _, o := range interfaces {
			_ = o.Sockets.Close()
		}
	})
	return interfaces
}

// connect dials and waits until the server serves this client.
func (w *world) connect() *net.UnixConn {
	w.Helper()
	c := w.dial()
	if err := errors.Join(handover.WaitHello(c), handover.Ready(c)); err != nil {
		w.Fatal(err)
	}
	return c
}

// TestInterfaces: a client receives changes of the interfaces, and the next client is served when it disconnects.
func TestInterfaces(t *testing.T) {
	w := newWorld(t)
	w.Set([]model.GuestConfig{guestOn("k6t-eth0")})
	first := w.connect()
	if interfaces := w.receive(
		first,
	); len(interfaces) != 1 || interfaces[0].Sockets.DHCP4 == nil ||
		interfaces[0].Sockets.RA != nil {
		t.Errorf("%+v", interfaces)
	}
	w.Set([]model.GuestConfig{guestOn("k6t-eth0"), guestOn("k6t-blue")})
	if interfaces := w.receive(first); len(interfaces) != 2 {
		t.Errorf("plugged: %+v", interfaces)
	}
	w.Set([]model.GuestConfig{guestOn("k6t-blue")})
	if interfaces := w.receive(first); len(interfaces) != 1 || interfaces[0].Guest.Link != "k6t-blue" {
		t.Errorf("unplugged: %+v", interfaces)
	}
	second := w.dial()
	_ = second.SetDeadline(time.Now().Add(100 * time.Millisecond))
	if err := handover.WaitHello(second); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("two at a time: %v", err)
	}
	_ = first.Close()
	_ = second.SetDeadline(time.Now().Add(30 * time.Second))
	if err := errors.Join(handover.WaitHello(second), handover.Ready(second)); err != nil {
		t.Fatal(err)
	}
	if interfaces := w.receive(second); len(interfaces) != 1 {
		t.Errorf("the next one: %+v", interfaces)
	}
}

// TestAnotherServer: a link is not shared with another DHCP server in the pod, but served after that has stopped.
func TestAnotherServer(t *testing.T) {
	w := newWorld(t)
	var other net.PacketConn
	err := w.pod.Do(func() (err error) {
		other, err = net.ListenPacket("udp4", ":67")
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	w.Set([]model.GuestConfig{guestOn("k6t-eth0")})
	c := w.connect()
	if interfaces, err := handover.Receive(c); err == nil {
		t.Errorf("it is shared: %+v", interfaces)
	}
	_ = other.Close()
	if interfaces := w.receive(w.connect()); len(interfaces) != 1 {
		t.Errorf("%+v", interfaces)
	}
}

// TestTaken: a second server in one pod is refused.
func TestTaken(t *testing.T) {
	w := newWorld(t)
	_, err := Listen(w.pod, "@weft-guest", 107, slog.New(slog.DiscardHandler))
	want := "socket @weft-guest: another process serves weft-guest there already (stop the process that listens there)"
	if err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
	path := filepath.Join(t.TempDir(), "guest.sock")
	one, err := Listen(w.pod, path, uint32(os.Getuid()), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = one.Close() }()
	if st, err := os.Stat(path); err != nil || st.Mode().Perm() != 0o600 {
		t.Errorf("%v %v", st, err)
	}
	if _, err := Listen(w.pod, path, 107, slog.New(slog.DiscardHandler)); err == nil ||
		!strings.Contains(err.Error(), path) {
		t.Errorf("%v", err)
	}
}

// TestNoLink: if a link is missing, the guest's other interfaces are served, and that one when the link exists again.
func TestNoLink(t *testing.T) {
	w := newWorld(t)
	both := []model.GuestConfig{guestOn("k6t-red"), guestOn("k6t-eth0")}
	w.Set(both)
	c := w.connect()
	if interfaces := w.receive(c); len(interfaces) != 1 || interfaces[0].Guest.Link != "k6t-eth0" {
		t.Errorf("%+v", interfaces)
	}
	nettest.Run(t, w.pod, "ip", "link", "add", "k6t-red", "type", "bridge")
	w.Set(both)
	if interfaces := w.receive(c); len(interfaces) != 2 || interfaces[0].Guest.Link != "k6t-red" {
		t.Errorf("%+v", interfaces)
	}
}

// TestManyClients: a pod cannot exhaust the node's file descriptors. Connections above the limit are closed; when the
// others have disconnected, a new client is served.
func TestManyClients(t *testing.T) {
	w := newWorld(t)
	w.Set([]model.GuestConfig{guestOn("k6t-eth0")})
	first := w.connect()
	w.receive(first)
	var waiting []*net.UnixConn
	for range maxClients - 1 {
		waiting = append(waiting, w.dial())
	}
	if err := handover.WaitHello(w.dial()); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("one more: %v", err)
	}
	for _, c := range append(waiting, first) {
		_ = c.Close()
	}
	for until := time.Now().Add(30 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		c := w.dial()
		err := errors.Join(handover.WaitHello(c), handover.Ready(c))
		if err == nil {
			w.receive(c)
			return
		}
		if time.Now().After(until) {
			t.Fatal(err)
		}
	}
}

// TestNoSocket: a file that is not a socket is not removed.
func TestNoSocket(t *testing.T) {
	path := filepath.Join(t.TempDir(), "precious")
	if err := os.WriteFile(path, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Listen(nil, path, uint32(os.Getuid()), slog.New(slog.DiscardHandler)); err == nil {
		t.Error("Listen replaced a file")
	}
	if b, err := os.ReadFile(path); string(b) != "x" {
		t.Errorf("%q %v", b, err)
	}
}

// TestOtherUsers: only the hypervisor's user receives sockets.
func TestOtherUsers(t *testing.T) {
	w := newWorld(t)
	dir, err := os.MkdirTemp("", "weft-fdserver")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(self)
	if err := errors.Join(err, os.Chmod(dir, 0o755), os.WriteFile(filepath.Join(dir, "dial"), b, 0o755)); err != nil {
		t.Fatal(err)
	}
	for uid, served := range map[uint32]bool{107: true, 65534: false} {
		cmd := exec.Command(filepath.Join(dir, "dial"))
		cmd.Env = []string{dialAs + "=@weft-guest"}
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid, NoSetGroups: true}}
		var out []byte
		err := w.pod.Do(func() (err error) {
			out, err = cmd.Output()
			return err
		})
		if errors.Is(err, syscall.EINVAL) || errors.Is(err, syscall.EPERM) {
			nettest.Skip(t, "no second user id in this namespace to call as")
		}
		if err != nil {
			t.Fatal(err)
		}
		if got := strings.TrimSpace(string(out)) == "<nil>"; got != served {
			t.Errorf("user %d: %s", uid, out)
		}
	}
}
