// SPDX-License-Identifier: Apache-2.0

package giver

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
			err = handover.Hear(conn.(*net.UnixConn))
		}
		fmt.Println(err)
		os.Exit(0)
	}
	os.Exit(nettest.Main(m))
}

// world is a pod with two wires and who gives them.
type world struct {
	*testing.T
	pod *netns.NS
	*Giver
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
	if w.Giver, err = Listen(w.pod, "@weft-guest", 107, slog.New(slog.NewTextHandler(t.Output(), nil))); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- w.Giver.Run(ctx) }()
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

func guestOn(link string) model.Guest {
	return model.Guest{
		Interface: link, Link: link, DHCP4: &model.GuestDHCP4{
			Address: netip.MustParsePrefix("10.0.2.2/24"), Server: netip.MustParseAddr("10.0.2.1"),
		},
	}
}

// dial calls as a weft-guest does.
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

// take is a whole hand-over.
func (w *world) take(c *net.UnixConn) []serve.Wire {
	w.Helper()
	wires, err := handover.Take(c)
	if err != nil {
		w.Fatal(err)
	}
	w.Cleanup(func() {
		for _, o := range wires {
			_ = o.Sockets.Close()
		}
	})
	return wires
}

func (w *world) begin() *net.UnixConn {
	w.Helper()
	c := w.dial()
	if err := errors.Join(handover.Hear(c), handover.Answer(c)); err != nil {
		w.Fatal(err)
	}
	return c
}

// TestWires: who serves is told what changes, and the next one is heard when it has gone.
func TestWires(t *testing.T) {
	w := newWorld(t)
	w.Set([]model.Guest{guestOn("k6t-eth0")})
	first := w.begin()
	if wires := w.take(first); len(wires) != 1 || wires[0].Sockets.DHCP4 == nil || wires[0].Sockets.RA != nil {
		t.Errorf("%+v", wires)
	}
	w.Set([]model.Guest{guestOn("k6t-eth0"), guestOn("k6t-blue")})
	if wires := w.take(first); len(wires) != 2 {
		t.Errorf("plugged: %+v", wires)
	}
	w.Set([]model.Guest{guestOn("k6t-blue")})
	if wires := w.take(first); len(wires) != 1 || wires[0].Guest.Link != "k6t-blue" {
		t.Errorf("unplugged: %+v", wires)
	}
	second := w.dial()
	_ = second.SetDeadline(time.Now().Add(100 * time.Millisecond))
	if err := handover.Hear(second); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("two at a time: %v", err)
	}
	_ = first.Close()
	_ = second.SetDeadline(time.Now().Add(30 * time.Second))
	if err := errors.Join(handover.Hear(second), handover.Answer(second)); err != nil {
		t.Fatal(err)
	}
	if wires := w.take(second); len(wires) != 1 {
		t.Errorf("the next one: %+v", wires)
	}
}

// TestAnotherServer: a wire is not shared with another DHCP server in the pod; when that has gone it is given.
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
	w.Set([]model.Guest{guestOn("k6t-eth0")})
	c := w.begin()
	if wires, err := handover.Take(c); err == nil {
		t.Errorf("it was given: %+v", wires)
	}
	_ = other.Close()
	if wires := w.take(w.begin()); len(wires) != 1 {
		t.Errorf("%+v", wires)
	}
}

// TestTaken: two that give in one pod are one too many.
func TestTaken(t *testing.T) {
	w := newWorld(t)
	_, err := Listen(w.pod, "@weft-guest", 107, slog.New(slog.DiscardHandler))
	want := "socket @weft-guest: somebody else gives wires to weft-guest there already (end who listens there)"
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

// TestNoLink: where a link has gone the guest's other wires are given, and that one when it is there again.
func TestNoLink(t *testing.T) {
	w := newWorld(t)
	both := []model.Guest{guestOn("k6t-red"), guestOn("k6t-eth0")}
	w.Set(both)
	c := w.begin()
	if wires := w.take(c); len(wires) != 1 || wires[0].Guest.Link != "k6t-eth0" {
		t.Errorf("%+v", wires)
	}
	nettest.Run(t, w.pod, "ip", "link", "add", "k6t-red", "type", "bridge")
	w.Set(both)
	if wires := w.take(c); len(wires) != 2 || wires[0].Guest.Link != "k6t-red" {
		t.Errorf("%+v", wires)
	}
}

// TestManyCallers: what runs in the pod cannot have the node's process open one file after another; those who call too
// many are hung up on, and who comes when they have gone is heard.
func TestManyCallers(t *testing.T) {
	w := newWorld(t)
	w.Set([]model.Guest{guestOn("k6t-eth0")})
	first := w.begin()
	w.take(first)
	var waiting []*net.UnixConn
	for range mostCallers - 1 {
		waiting = append(waiting, w.dial())
	}
	if err := handover.Hear(w.dial()); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("one more: %v", err)
	}
	for _, c := range append(waiting, first) {
		_ = c.Close()
	}
	for until := time.Now().Add(30 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		c := w.dial()
		err := errors.Join(handover.Hear(c), handover.Answer(c))
		if err == nil {
			w.take(c)
			return
		}
		if time.Now().After(until) {
			t.Fatal(err)
		}
	}
}

// TestNoSocket: a file that is no socket is not taken away for one.
func TestNoSocket(t *testing.T) {
	path := filepath.Join(t.TempDir(), "precious")
	if err := os.WriteFile(path, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Listen(nil, path, uint32(os.Getuid()), slog.New(slog.DiscardHandler)); err == nil {
		t.Error("it listens there")
	}
	if b, err := os.ReadFile(path); string(b) != "x" {
		t.Errorf("%q %v", b, err)
	}
}

// TestStrangers: nobody but the hypervisor's user gets sockets.
func TestStrangers(t *testing.T) {
	w := newWorld(t)
	dir, err := os.MkdirTemp("", "weft-giver")
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
	for uid, heard := range map[uint32]bool{107: true, 65534: false} {
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
		if got := strings.TrimSpace(string(out)) == "<nil>"; got != heard {
			t.Errorf("user %d: %s", uid, out)
		}
	}
}
