// SPDX-License-Identifier: Apache-2.0

package process

import (
	"bufio"
	"context"
	"fmt"
	"log/slog"
	"net"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weft-net/weft/internal/node/tunnel"
)

// permanent is a permanent process of a node, here in the test's.
type permanent struct {
	tunnels *tunnel.Runner
	locked  atomic.Bool // by an agent
	stop    func()
}

func (n *node) runner() *tunnel.Runner {
	return tunnel.New(tunnel.Config{
		NS: n.ns, Log: slog.New(slog.NewTextHandler(n.t.Output(), nil)), Now: time.Now, After: time.After,
	})
}

// serve starts a permanent process.
func (n *node) serve() *permanent {
	n.t.Helper()
	l, err := Listen(n.socket)
	if err != nil {
		n.t.Fatal(err)
	}
	s := &permanent{tunnels: n.runner()}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() {
		done <- NewServer(ServerConfig{
			Listener: l, Socket: n.socket, Program: "test", Tunnels: s.tunnels, Locked: s.locked.Load, Permanent: true,
			Log: slog.New(slog.NewTextHandler(n.t.Output(), nil)), Now: time.Now, After: time.After,
		}).Run(ctx)
	}()
	s.stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			n.t.Error(err)
		}
	})
	n.t.Cleanup(s.stop)
	return s
}

// contained returns the client of an agent that is the first process of its container, and what that runs itself.
func (n *node) contained() (*Client, *tunnel.Runner) {
	n.t.Helper()
	here := n.runner()
	c := NewClient(ClientConfig{
		Socket: n.socket, Local: here, Log: slog.New(slog.NewTextHandler(n.t.Output(), nil)), Now: time.Now,
		After: time.After,
	})
	n.t.Cleanup(c.Close)
	return c, here
}

// passes has the client run the tunnel, and expects it in the agent or in the process.
func (n *node) passes(c *Client, here *tunnel.Runner, inAgent bool) {
	n.t.Helper()
	if err := c.Keep(n.t.Context(), n.wanted); err != nil {
		n.t.Fatal(err)
	}
	if got := here.Running() == 1; got != inAgent || !n.taken() {
		n.t.Fatalf("the tunnel runs in the agent: %t, want %t; its device is in use: %t", got, inAgent, n.taken())
	}
}

// TestPermanentProcess: an agent in a container uses a permanent process as soon as there is one, the next agent finds its
// tunnels unchanged, and an agent whose process is gone runs them itself.
func TestPermanentProcess(t *testing.T) {
	n := newNode(t)
	first, here := n.contained()
	n.passes(first, here, true)
	process := n.serve()
	<-first.Changed()
	n.passes(first, here, false)

	first.Close()
	second, here := n.contained()
	if second.link == nil || !n.taken() {
		t.Fatal("the second agent is not connected, or the device was released")
	}
	n.passes(second, here, false)
	if err := second.Keep(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	if n.taken() {
		t.Error("the device of a tunnel that is not wanted is in use")
	}
	second.Close()
	time.Sleep(2 * interval) // a process of an agent would end

	third, here := n.contained()
	n.passes(third, here, false)
	process.stop()
	<-third.Changed()
	n.passes(third, here, true)
	if l, err := Listen(n.socket); err != nil || l.Close() != nil { // of one that was killed
		t.Fatal(err)
	}
	n.passes(third, here, true)
	n.serve()
	<-third.Changed()
	n.passes(third, here, false)
}

// TestPermanentWithoutAgent: a permanent process keeps its tunnels without an agent, releases them for one that does not
// connect, and serves the next one.
func TestPermanentWithoutAgent(t *testing.T) {
	n := newNode(t)
	process := n.serve()
	c, here := n.contained()
	n.passes(c, here, false)
	c.Close()
	time.Sleep(2 * foreignAfter * interval) // no agent
	if !n.taken() {
		t.Fatal("the device was released without an agent")
	}
	process.locked.Store(true)
	n.eventually("the device is released", func() bool { return !n.taken() })
	c, here = n.contained()
	n.passes(c, here, false)
}

// TestPermanentOtherVersion: the agent runs the tunnels itself where it does not understand the process, which releases
// them, and tries it once.
func TestPermanentOtherVersion(t *testing.T) {
	for name, lines := range map[string]string{
		"version": `{"version":7,"program":"v7","pid":1}`,
		"field":   `{"version":1,"program":"v0"}` + "\n" + `{"unknown":"json: unknown field"}`,
	} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t)
			l, err := Listen(n.socket)
			if err != nil {
				t.Fatal(err)
			}
			var accepted, ended atomic.Int32
			var serve sync.WaitGroup
			serve.Go(func() {
				for {
					conn, err := l.Accept()
					if err != nil {
						return
					}
					accepted.Add(1)
					answer(conn, lines, &ended)
				}
			})
			defer serve.Wait()
			defer func() { _ = l.Close() }()
			c, here := n.contained()
			for range 3 {
				n.passes(c, here, true)
			}
			if accepted.Load() != 1 || ended.Load() != 1 {
				t.Errorf("%d connections, and %d requests to release the tunnels", accepted.Load(), ended.Load())
			}
			_ = l.Close()
			if err := os.Remove(n.socket); err != nil {
				t.Fatal(err)
			}
			n.serve() // of this version
			<-c.Changed()
			n.passes(c, here, false)
		})
	}
}

// TestPermanentProcessWithoutRights: tunnels that the process cannot run, and the agent can, stay in the agent. Those that
// neither can are left to the process, whose other tunnels are not disturbed again.
func TestPermanentProcessWithoutRights(t *testing.T) {
	n := newNode(t)
	l, err := Listen(n.socket)
	if err != nil {
		t.Fatal(err)
	}
	var requests atomic.Int32
	var serve sync.WaitGroup
	serve.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			_, _ = fmt.Fprintln(conn, `{"version":1,"program":"v1","pid":1}`)
			for lines := bufio.NewScanner(conn); lines.Scan(); {
				requests.Add(1)
				answer := "{}"
				if strings.Contains(lines.Text(), "udp0") || strings.Contains(lines.Text(), "unchanged") {
					answer = `{"error":"udp udp0: raw socket: operation not permitted"}`
				}
				_, _ = fmt.Fprintln(conn, answer)
			}
			_ = conn.Close()
		}
	})
	defer serve.Wait()
	defer func() { _ = l.Close() }()
	c, here := n.contained()
	n.passes(c, here, true)
	n.passes(c, here, true)
	if got := requests.Load(); got != 2 {
		t.Errorf("%d requests, want one for the tunnel and one for its release", got)
	}
	c.Close()

	n.wanted[0].Link = "udp0.missing"
	c, here = n.contained()
	for range 3 {
		if err := c.Keep(t.Context(), n.wanted); err == nil || c.link == nil || here.Running() != 0 {
			t.Errorf("error %v, connected: %t, %d tunnels in the agent", err, c.link != nil, here.Running())
		}
	}
	c.Close()
	if got := requests.Load(); got != 2+4 {
		t.Errorf("%d requests, want three for the tunnel and one for its release", got-2)
	}
}

// answer answers each line of a connection with the next of lines, until the agent wants the end.
func answer(conn net.Conn, lines string, ended *atomic.Int32) {
	defer func() { _ = conn.Close() }()
	requests := bufio.NewScanner(conn)
	for line := range strings.Lines(lines + "\n") {
		_, _ = fmt.Fprint(conn, line)
		if !requests.Scan() {
			return
		}
		if strings.Contains(requests.Text(), `"end":true`) {
			ended.Add(1)
			return
		}
	}
	if requests.Scan() && strings.Contains(requests.Text(), `"end":true`) {
		ended.Add(1)
	}
}
