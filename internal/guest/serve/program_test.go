// SPDX-License-Identifier: Apache-2.0

package serve_test

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
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/insomniacslk/dhcp/dhcpv4"
	"golang.org/x/sys/unix"

	"github.com/weft-net/weft/internal/guest/fdserver"
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/netns"
	"github.com/weft-net/weft/internal/nettest"
)

// TestProgram: weft-guest serves as a user with one capability, CAP_NET_BIND_SERVICE, in little memory. A weft-guest that
// replaces a killed one continues to serve; so does one whose fdserver restarts, with the new configuration.
func TestProgram(t *testing.T) {
	pod, guest := world(t)
	nettest.Run(t, guest, "ip", "link", "set", "eth0", "up")
	dir := worldReadableDir(t)
	program := filepath.Join(dir, "weft-guest")
	nettest.Program(t, "weft-guest", program)
	g := config()
	_, end := listening(t, pod, g)
	c := udp(t, guest, "udp4", ":68")
	first := startGuest(t, pod, program)
	address(t, c, "10.0.2.2", true)
	checkCapabilities(t, first.Process.Pid)
	kill(t, first)
	second := startGuest(t, pod, program)
	address(t, c, "10.0.2.2", true)
	end()
	address(t, c, "10.0.2.2", true) // it serves without the fdserver
	g.DHCP4.Address = netip.MustParsePrefix("10.0.2.3/24")
	other, end := listening(t, pod, g)
	defer end()
	address(t, c, "10.0.2.3", false)
	changed := g
	changed.DHCP4 = &model.GuestDHCP4{Address: netip.MustParsePrefix("10.0.2.4/24"), Server: g.DHCP4.Server, MTU: 1450}
	other.Set([]model.GuestConfig{changed})
	address(t, c, "10.0.2.4", false)
	kill(t, second)
}

// listening runs an fdserver for a guest's interface in the pod until end is called.
func listening(t *testing.T, pod *netns.NS, g model.GuestConfig) (*fdserver.Server, func()) {
	t.Helper()
	out, err := fdserver.Listen(pod, "@weft-guest", 107, slog.New(slog.NewTextHandler(t.Output(), nil)))
	if err != nil {
		t.Fatal(err)
	}
	out.Set([]model.GuestConfig{g})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- out.Run(ctx) }()
	return out, sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// startGuest starts the program in the pod as a user with one capability.
func startGuest(t *testing.T, pod *netns.NS, program string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command(program)
	cmd.Stderr = t.Output()
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Credential: &syscall.Credential{Uid: 107, Gid: 107}, AmbientCaps: []uintptr{unix.CAP_NET_BIND_SERVICE},
	}
	err := pod.Do(cmd.Start)
	if errors.Is(err, syscall.EINVAL) || errors.Is(err, syscall.EPERM) {
		nettest.SkipMissing(t, fmt.Sprintf("no process of another user can be startGuest: %v", err))
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if cmd.ProcessState == nil {
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
		}
	})
	return cmd
}

func kill(t *testing.T, cmd *exec.Cmd) {
	t.Helper()
	_ = cmd.Process.Kill()
	if err := cmd.Wait(); err == nil || !strings.Contains(err.Error(), "killed") {
		t.Errorf("it ended by itself: %v", err)
	}
}

// address sends DHCPDISCOVER until the guest is offered the wanted address; with only, no other one may be offered.
func address(t *testing.T, c net.PacketConn, want string, only bool) {
	t.Helper()
	discover, err := dhcpv4.New(dhcpv4.WithHwAddr(net.HardwareAddr{2, 0, 0, 0, 0, 0x77}),
		dhcpv4.WithMessageType(dhcpv4.MessageTypeDiscover))
	if err != nil {
		t.Fatal(err)
	}
	got := ""
	for range 100 {
		offer, err := dhcpv4.FromBytes(exchange(t, c, discover.ToBytes(), &net.UDPAddr{IP: net.IPv4bcast, Port: 67}))
		if err != nil {
			t.Fatal(err)
		}
		got = offer.YourIPAddr.String()
		if got == want {
			return
		}
		if only {
			break
		}
		time.Sleep(20 * time.Millisecond)
	}
	t.Fatalf("offered %s, want %s", got, want)
}

// checkCapabilities checks a process's capabilities, user and memory.
func checkCapabilities(t *testing.T, pid int) {
	t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(status)) {
		key, value, _ := strings.Cut(strings.TrimSpace(line), ":")
		value = strings.TrimSpace(value)
		switch key {
		case "CapEff", "CapPrm", "CapInh":
			if value != "0000000000000400" {
				t.Errorf("%s is %s, want CAP_NET_BIND_SERVICE alone", key, value)
			}
		case "Uid":
			if !strings.HasPrefix(value, "107\t107") {
				t.Errorf("it runs as %s", value)
			}
		case "VmRSS":
			const limit = 15 << 10
			kib, err := strconv.Atoi(strings.TrimSuffix(value, " kB"))
			if err != nil || kib > limit {
				t.Errorf("VmRSS is %s, want less than %d kB", value, limit)
			}
			t.Logf("resident: %s", value)
		}
	}
}

// worldReadableDir returns a directory that other users can read.
func worldReadableDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "weft-guest")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return dir
}
