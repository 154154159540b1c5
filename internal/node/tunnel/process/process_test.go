// SPDX-License-Identifier: Apache-2.0

package process

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/weft-net/weft/internal/netns"
	"github.com/weft-net/weft/internal/nettest"
	"github.com/weft-net/weft/internal/node/tunnel"
	"github.com/weft-net/weft/internal/node/tunnel/tun"
	"github.com/weft-net/weft/internal/plan/mesh"
)

// serveArg makes the test's program a process of the tunnels.
const serveArg = "serve-tunnels"

// lockName is the abstract name that agents lock.
const lockName = "@weft-agent-of-the-test"

func TestMain(m *testing.M) {
	if len(os.Args) == 3 && os.Args[1] == serveArg {
		if err := serve(os.Args[2]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(nettest.Main(m))
}

func serve(socket string) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	l, err := net.FileListener(os.NewFile(ListenerFD, socket))
	if err != nil {
		return err
	}
	log := slog.New(slog.NewTextHandler(os.Stderr, nil))
	return NewServer(ServerConfig{
		Listener: l.(*net.UnixListener), Socket: socket, Program: "test",
		Tunnels: tunnel.New(tunnel.Config{Log: log, Now: time.Now, After: time.After}),
		Locked:  func() bool { return Locked(lockName) }, Log: log, Now: time.Now, After: time.After,
	}).Run(ctx)
}

// node is a node with the device of one tunnel.
type node struct {
	t      *testing.T
	ns     *netns.NS
	socket string
	pids   map[int]bool
	wanted []mesh.Tunnel
}

func newNode(t *testing.T) *node {
	t.Helper()
	nettest.Need(t, "tap")
	n := &node{t: t, ns: nettest.NS(t, "node"), socket: filepath.Join(t.TempDir(), SocketName), pids: map[int]bool{}}
	nettest.IP(t, n.ns, "link set lo up")
	nettest.IP(t, n.ns, "tuntap add udp0 mode tun")
	n.wanted = []mesh.Tunnel{{
		Backend: "udp", Link: "udp0", Local: netip.MustParseAddrPort("127.0.0.1:8285"),
		Peers: []mesh.TunnelPeer{{
			Node: "n2", CIDR: netip.MustParsePrefix("10.244.2.0/24"), Endpoint: netip.MustParseAddrPort("127.0.0.2:8285"),
		}},
	}}
	t.Cleanup(func() {
		for pid := range n.pids {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
	})
	return n
}

// client returns an agent's client; the agent ends with the test.
func (n *node) client() *Client {
	n.t.Helper()
	self, err := os.Executable()
	if err != nil {
		n.t.Fatal(err)
	}
	c := NewClient(ClientConfig{
		Socket: n.socket, Program: []string{self, serveArg, n.socket}, NS: n.ns, Stderr: os.Stderr,
		Log: slog.New(slog.NewTextHandler(n.t.Output(), nil)), Now: time.Now,
	})
	n.t.Cleanup(c.Close)
	return c
}

// keep has the client run the tunnel, and returns the process.
func (n *node) keep(c *Client) (pid int) {
	n.t.Helper()
	if err := c.Keep(n.t.Context(), n.wanted); err != nil {
		n.t.Fatal(err)
	}
	n.pids[c.link.hello.PID] = true
	if !n.taken() {
		n.t.Error("the device is not open")
	}
	return c.link.hello.PID
}

// taken reports whether a process has the device open.
func (n *node) taken() bool {
	return n.ns.Do(func() error {
		fd, err := tun.Attach("udp0")
		if err == nil {
			_ = syscall.Close(fd)
		}
		return err
	}) != nil
}

func (n *node) eventually(what string, ok func() bool) {
	n.t.Helper()
	for deadline := time.Now().Add(time.Minute); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			n.t.Fatalf("not after a minute: %s", what)
		}
	}
}

// TestOutlivesAgent: the next agent finds the process and its tunnels, and a request for the same ones changes nothing.
func TestOutlivesAgent(t *testing.T) {
	n := newNode(t)
	first := n.client()
	pid := n.keep(first)
	first.Close()
	second := n.client()
	if second.link == nil || second.link.hello.PID != pid {
		t.Fatalf("the second agent is not connected to process %d", pid)
	}
	if !n.taken() {
		t.Error("the device was released")
	}
	if again := n.keep(second); again != pid {
		t.Errorf("process %d has replaced %d", again, pid)
	}
	if err := second.Keep(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	second.Close()
	n.eventually("without a tunnel and an agent the process ends", func() bool {
		_, err := os.Lstat(n.socket)
		return os.IsNotExist(err) && !n.taken()
	})
}

// TestKilledProcess: the agent gets a token, and its next pass starts another process.
func TestKilledProcess(t *testing.T) {
	n := newNode(t)
	c := n.client()
	pid := n.keep(c)
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	<-c.Changed()
	if again := n.keep(c); again == pid {
		t.Errorf("process %d is still the same", again)
	}
}

// TestAgentWithoutProcess: an agent that knows no such process gets the devices.
func TestAgentWithoutProcess(t *testing.T) {
	n := newNode(t)
	c := n.client()
	lock := func() net.Listener {
		var l net.Listener
		if err := n.ns.Do(func() (err error) {
			l, err = net.Listen("unix", lockName)
			return err
		}); err != nil {
			t.Fatal(err)
		}
		return l
	}
	l := lock()
	n.keep(c)
	time.Sleep(2 * foreignAfter * interval) // the agent of the lock is this one: nothing happens
	if !n.taken() {
		t.Fatal("the process has ended while an agent was connected")
	}
	_ = l.Close()
	c.Close()
	time.Sleep(2 * foreignAfter * interval) // no agent
	if !n.taken() {
		t.Fatal("the process has ended without an agent")
	}
	l = lock()
	defer func() { _ = l.Close() }()
	n.eventually("the device is released", func() bool { return !n.taken() })
}

// TestRemovedSocket: without its socket no agent could change the tunnels.
func TestRemovedSocket(t *testing.T) {
	n := newNode(t)
	n.keep(n.client())
	if err := os.Remove(n.socket); err != nil {
		t.Fatal(err)
	}
	n.eventually("the device is released", func() bool { return !n.taken() })
}

// TestUnknownRequest: a request of another version, or with an unknown field, changes nothing and is answered.
func TestUnknownRequest(t *testing.T) {
	n := newNode(t)
	c := n.client()
	pid := n.keep(c)
	conn, err := net.Dial("unix", n.socket)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	lines := bufio.NewScanner(conn)
	next := func() string {
		if !lines.Scan() {
			t.Fatalf("no answer: %v", lines.Err())
		}
		return lines.Text()
	}
	if got := next(); !strings.HasPrefix(got, `{"version":1,`) {
		t.Errorf("the first message is %s", got)
	}
	for _, line := range []string{
		`{"version":2,"tunnels":[]}`, `{"tunnels":[]}`, `{"version":1,"tunnels":[],"pace":1}`,
		`{"version":1,"tunnels":[{"backend":"udp","link":"udp1","color":"red"}]}`, `{"version":1,"tunnels":`, `[]`, ``,
	} {
		if _, err := fmt.Fprintln(conn, line); err != nil {
			t.Fatal(err)
		}
		var r response
		if text := next(); json.Unmarshal([]byte(text), &r) != nil || r.Unknown == "" {
			t.Errorf("%s: answered %s", line, text)
		}
	}
	if again := n.keep(c); again != pid {
		t.Errorf("process %d has replaced %d", again, pid)
	}
}

// TestOtherVersion: a process of another version is ended and replaced, also if only a field is unknown to it.
func TestOtherVersion(t *testing.T) {
	for name, lines := range map[string]string{
		"version": `{"version":7,"program":"v7","pid":1}`,
		"field":   `{"version":1,"program":"v0"}` + "\n" + `{"unknown":"json: unknown field"}`,
	} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t)
			l, err := net.Listen("unix", n.socket)
			if err != nil {
				t.Fatal(err)
			}
			ended := make(chan struct{})
			go func() {
				defer close(ended)
				conn, err := l.Accept()
				if err != nil {
					return
				}
				defer func() { _ = conn.Close() }()
				requests := bufio.NewScanner(conn)
				for line := range strings.Lines(lines + "\n") {
					_, _ = conn.Write([]byte(line))
					if requests.Scan() && strings.Contains(requests.Text(), `"end":true`) {
						_ = l.Close()
						return
					}
				}
				if requests.Scan() && strings.Contains(requests.Text(), `"end":true`) {
					_ = l.Close()
				}
			}()
			n.keep(n.client())
			<-ended
		})
	}
}
