// SPDX-License-Identifier: Apache-2.0

package serve_test

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/insomniacslk/dhcp/dhcpv4"
	"golang.org/x/sys/unix"

	"github.com/weft-net/weft/internal/guest/handover"
	"github.com/weft-net/weft/internal/guest/serve"
	"github.com/weft-net/weft/internal/guest/sockets"
	"github.com/weft-net/weft/internal/nettest"
)

// TestProgram: weft-guest serves as a user with one right, CAP_NET_BIND_SERVICE, in little memory; one that was killed is
// started again, and serves on.
func TestProgram(t *testing.T) {
	pod, guest := world(t)
	nettest.Run(t, guest, "ip", "link", "set", "eth0", "up")
	g := words()
	s, err := sockets.Open(pod, g)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	dir := readable(t)
	program := filepath.Join(dir, "weft-guest")
	build := exec.Command("go", "build", "-o", program, "github.com/weft-net/weft/cmd/weft-guest")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	socket := filepath.Join(dir, "guest.sock")
	listener, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	if err := os.Chmod(socket, 0o666); err != nil {
		t.Fatal(err)
	}
	_ = listener.(*net.UnixListener).SetDeadline(time.Now().Add(time.Minute))
	c := udp(t, guest, "udp4", ":68")
	for round := range 2 {
		cmd := exec.Command(program, "--socket", socket)
		var stderr strings.Builder
		cmd.Stderr = &stderr
		cmd.SysProcAttr = &syscall.SysProcAttr{
			Credential: &syscall.Credential{Uid: 107, Gid: 107}, AmbientCaps: []uintptr{unix.CAP_NET_BIND_SERVICE}, Pdeathsig: syscall.SIGKILL,
		}
		if err := cmd.Start(); errors.Is(err, syscall.EINVAL) || errors.Is(err, syscall.EPERM) {
			nettest.Without(t, fmt.Sprintf("no process of another user can be started: %v", err))
		} else if err != nil {
			t.Fatal(err)
		}
		conn, err := listener.Accept()
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(handover.Give(conn.(*net.UnixConn), []serve.Wire{{Guest: g, Sockets: s}}), conn.Close()); err != nil {
			t.Fatal(err)
		}
		discover, err := dhcpv4.New(dhcpv4.WithHwAddr(net.HardwareAddr{2, 0, 0, 0, 0, 0x77}), dhcpv4.WithMessageType(dhcpv4.MessageTypeDiscover))
		if err != nil {
			t.Fatal(err)
		}
		offer, err := dhcpv4.FromBytes(exchange(t, c, discover.ToBytes(), &net.UDPAddr{IP: net.IPv4bcast, Port: 67}))
		if err != nil || offer.YourIPAddr.String() != "10.0.2.2" {
			t.Errorf("round %d: %v %v", round, offer, err)
		}
		rights(t, cmd.Process.Pid)
		_ = cmd.Process.Kill()
		if err := cmd.Wait(); err == nil || !strings.Contains(err.Error(), "killed") {
			t.Errorf("round %d: %v\n%s", round, err, &stderr)
		}
	}
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
