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

	"github.com/weft-net/weft/internal/guest/giver"
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/netns"
	"github.com/weft-net/weft/internal/nettest"
)

// TestProgram: weft-guest serves as a user with one right, CAP_NET_BIND_SERVICE, in little memory. One that was killed
// is started again, and serves on, and so does one whose giver was started again, with what that one gives.
func TestProgram(t *testing.T) {
	pod, guest := world(t)
	nettest.Run(t, guest, "ip", "link", "set", "eth0", "up")
	dir := readable(t)
	program := filepath.Join(dir, "weft-guest")
	nettest.Program(t, "weft-guest", program)
	g := words()
	_, end := given(t, pod, g)
	c := udp(t, guest, "udp4", ":68")
	first := started(t, pod, program)
	address(t, c, "10.0.2.2", true)
	rights(t, first.Process.Pid)
	killed(t, first)
	second := started(t, pod, program)
	address(t, c, "10.0.2.2", true)
	end()
	address(t, c, "10.0.2.2", true) // it serves on alone
	g.DHCP4.Address = netip.MustParsePrefix("10.0.2.3/24")
	other, end := given(t, pod, g)
	defer end()
	address(t, c, "10.0.2.3", false)
	changed := g
	changed.DHCP4 = &model.GuestDHCP4{Address: netip.MustParsePrefix("10.0.2.4/24"), Server: g.DHCP4.Server, MTU: 1450}
	other.Set([]model.Guest{changed})
	address(t, c, "10.0.2.4", false)
	killed(t, second)
}

// given gives a guest's wire in the pod until end.
func given(t *testing.T, pod *netns.NS, g model.Guest) (*giver.Giver, func()) {
	t.Helper()
	out, err := giver.Listen(pod, "@weft-guest", 107, slog.New(slog.NewTextHandler(t.Output(), nil)))
	if err != nil {
		t.Fatal(err)
	}
	out.Set([]model.Guest{g})
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

// started starts the program in the pod as a user with one right.
func started(t *testing.T, pod *netns.NS, program string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command(program)
	cmd.Stderr = t.Output()
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Credential: &syscall.Credential{Uid: 107, Gid: 107}, AmbientCaps: []uintptr{unix.CAP_NET_BIND_SERVICE},
	}
	err := pod.Do(cmd.Start)
	if errors.Is(err, syscall.EINVAL) || errors.Is(err, syscall.EPERM) {
		nettest.Without(t, fmt.Sprintf("no process of another user can be started: %v", err))
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

func killed(t *testing.T, cmd *exec.Cmd) {
	t.Helper()
	_ = cmd.Process.Kill()
	if err := cmd.Wait(); err == nil || !strings.Contains(err.Error(), "killed") {
		t.Errorf("it ended by itself: %v", err)
	}
}

// address asks for an address until the guest is offered the one that is wanted; with only, no other one may be
// offered.
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

// rights checks what a process may, and how much memory it has.
func rights(t *testing.T, pid int) {
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
			const most = 15 << 10
			kib, err := strconv.Atoi(strings.TrimSuffix(value, " kB"))
			if err != nil || kib > most {
				t.Errorf("it holds %s, want less than %d kB", value, most)
			}
			t.Logf("resident: %s", value)
		}
	}
}

// readable is a directory that other users may look into.
func readable(t *testing.T) string {
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
