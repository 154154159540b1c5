// SPDX-License-Identifier: Apache-2.0

package udp_test

import (
	"bufio"
	"context"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/weft-net/weft/internal/netns"
	"github.com/weft-net/weft/internal/node/tunnel/udp"
)

// child has the test binary be a node: device, own end, own address, the peer's prefix and end.
const child = "WEFT_UDP_BENCH_NODE"

// node carries packets until it is killed.
func node(words []string) error {
	p, err := udp.Open(udp.Config{
		Link: words[0], Listen: netip.MustParseAddrPort(words[1]), Own: netip.MustParseAddr(words[2]), Now: time.Now,
	})
	if err != nil {
		return err
	}
	prefix, to := netip.MustParsePrefix(words[3]), netip.MustParseAddrPort(words[4])
	p.SetPeers([]udp.Peer{{Prefix: prefix, To: to}}, udp.Accept{
		Senders: []udp.Sender{{Addrs: []netip.Addr{to.Addr()}, Prefixes: []netip.Prefix{prefix}}},
	})
	fmt.Println("ready")
	return p.Run(context.Background())
}

// proxies starts a process for each of two nodes.
func proxies(t testing.TB, a, b *end) (stop func()) {
	t.Helper()
	var all []*exec.Cmd
	for _, n := range [][2]*end{{a, b}, {b, a}} {
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), child+"="+strings.Join([]string{
			link(4), netip.AddrPortFrom(n[0].underlay(4), port).String(), n[0].prefix(4).Addr().String(),
			n[1].prefix(4).String(),
			netip.AddrPortFrom(n[1].underlay(4), port).String(),
		}, " "))
		all = append(all, begin(t, n[0].ns, cmd))
	}
	return func() {
		for _, cmd := range all {
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
		}
	}
}

// begin starts a node's process, and waits until it is ready.
func begin(t testing.TB, ns *netns.NS, cmd *exec.Cmd) *exec.Cmd {
	t.Helper()
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stderr = os.Stderr
	if err := ns.Do(cmd.Start); err != nil {
		t.Fatal(err)
	}
	if line, err := bufio.NewReader(out).ReadString('\n'); err != nil || line != "ready\n" {
		t.Fatalf("a node says %q: %v", line, err)
	}
	return cmd
}

// pair makes a connection between the pods of a and b: blocking sockets, so that Go's poller is not measured.
func pair(t testing.TB, a, b *end, kind int) (client, server int) {
	t.Helper()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	addr := func(e *end) *unix.SockaddrInet4 {
		return &unix.SockaddrInet4{Port: 5001, Addr: netip.MustParseAddr(e.pod(4)).As4()}
	}
	open := func(e *end) (fd int) {
		must(e.ns.Do(func() (err error) { fd, err = unix.Socket(unix.AF_INET, kind, 0); return err }))
		must(unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1))
		t.Cleanup(func() { _ = unix.Close(fd) })
		return fd
	}
	client, server = open(a), open(b)
	must(unix.Bind(server, addr(b)))
	if kind == unix.SOCK_DGRAM {
		must(unix.Connect(client, addr(b)))
		return client, server
	}
	must(unix.Listen(server, 1))
	must(unix.Connect(client, addr(b)))
	conn, _, err := unix.Accept(server)
	must(err)
	_ = unix.Close(server)
	for _, fd := range []int{client, conn} {
		must(unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_NODELAY, 1))
	}
	return client, conn
}

// served runs f on a thread of its own until the end of the measurement.
func served(f func()) (wait func()) {
	done := make(chan struct{})
	go func() {
		runtime.LockOSThread()
		defer close(done)
		f()
	}()
	return func() { <-done }
}

// requests counts answers to requests of a byte.
func requests(t testing.TB, a, b *end, d time.Duration) float64 {
	client, server := pair(t, a, b, unix.SOCK_STREAM)
	wait := served(func() {
		buf := make([]byte, 1)
		for {
			if n, _ := unix.Read(server, buf); n != 1 {
				return
			}
			_, _ = unix.Write(server, buf)
		}
	})
	buf, n := make([]byte, 1), 0
	begin := time.Now()
	for time.Since(begin) < d {
		_, _ = unix.Write(client, buf)
		_, _ = unix.Read(client, buf)
		n++
	}
	rate := float64(n) / time.Since(begin).Seconds()
	_ = unix.Shutdown(client, unix.SHUT_RDWR)
	wait()
	_ = unix.Close(server)
	return rate
}

// packets counts small datagrams that arrive.
func packets(t testing.TB, a, b *end, d time.Duration) float64 {
	client, server := pair(t, a, b, unix.SOCK_DGRAM)
	var n, over atomic.Int64
	_ = unix.SetsockoptTimeval(server, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Usec: 100_000})
	wait := served(func() {
		buf := make([]byte, 64)
		for over.Load() == 0 {
			if k, _ := unix.Read(server, buf); k > 0 {
				n.Add(1)
			}
		}
	})
	buf := make([]byte, 18)
	begin := time.Now()
	for time.Since(begin) < d {
		for range 32 {
			_, _ = unix.Write(client, buf)
		}
	}
	rate := float64(n.Load()) / time.Since(begin).Seconds()
	over.Store(1)
	wait()
	_ = unix.Close(server)
	return rate
}

// bytesOf counts the bytes of one stream.
func bytesOf(t testing.TB, a, b *end, d time.Duration) float64 {
	client, server := pair(t, a, b, unix.SOCK_STREAM)
	var n atomic.Int64
	wait := served(func() {
		buf := make([]byte, 256<<10)
		for {
			k, _ := unix.Read(server, buf)
			if k <= 0 {
				return
			}
			n.Add(int64(k))
		}
	})
	buf := make([]byte, 128<<10)
	begin := time.Now()
	for time.Since(begin) < d {
		_, _ = unix.Write(client, buf)
	}
	rate := float64(n.Load()) / time.Since(begin).Seconds()
	_ = unix.Shutdown(client, unix.SHUT_RDWR)
	wait()
	_ = unix.Close(server)
	return rate
}

// BenchmarkPath measures two nodes, each a process, over a cable.
func BenchmarkPath(b *testing.B) {
	for name, measure := range map[string]func(testing.TB, *end, *end, time.Duration) float64{
		"requests/s": requests, "packets/s": packets, "B/s": bytesOf,
	} {
		b.Run(name, func(b *testing.B) {
			one, two := wire(b)
			defer proxies(b, one, two)()
			sum := 0.0
			for b.Loop() {
				sum += measure(b, one, two, 500*time.Millisecond)
			}
			b.ReportMetric(sum/float64(b.N), name)
		})
	}
}
