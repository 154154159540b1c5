// SPDX-License-Identifier: Apache-2.0

package flannel_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"regexp"
	"strings"
	"sync/atomic"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/weft-net/weft/internal/nettest"
)

// dial connects from the hub's namespace.
func (c *cluster) dial(ctx context.Context, addr string) (conn net.Conn, err error) {
	err = c.hub.Do(func() error {
		conn, err = (&net.Dialer{}).DialContext(ctx, "tcp", addr)
		return err
	})
	return conn, err
}

// flow is a TCP connection between two pods with continuous request/response rounds.
type flow struct {
	c       *cluster
	conn    *net.TCPConn
	rounds  atomic.Int64
	broken  atomic.Pointer[error]
	closing chan struct{}
	done    chan struct{}
}

// connect opens a flow from the pod of one node to that of another.
func (c *cluster) connect(from, to *node) *flow {
	c.t.Helper()
	var listener net.Listener
	err := to.pod.Do(func() (err error) {
		listener, err = net.Listen("tcp", net.JoinHostPort(to.pods()[0], "7"))
		return err
	})
	if err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(func() { _ = listener.Close() })
	go func() {
		conn, err := listener.Accept()
		_ = listener.Close() // the next connection has a new listener
		if err == nil {
			_, _ = io.Copy(conn, conn)
			_ = conn.Close()
		}
	}()
	var conn net.Conn
	err = from.pod.Do(func() (err error) {
		conn, err = (&net.Dialer{Timeout: limit}).Dial("tcp", listener.Addr().String())
		return err
	})
	if err != nil {
		c.t.Fatal(err)
	}
	f := &flow{c: c, conn: conn.(*net.TCPConn), closing: make(chan struct{}), done: make(chan struct{})}
	go f.loop()
	return f
}

func (f *flow) loop() {
	defer close(f.done)
	buf := make([]byte, 64)
	for {
		select {
		case <-f.closing:
			return
		default:
		}
		_ = f.conn.SetDeadline(time.Now().Add(limit))
		_, err := f.conn.Write(buf)
		if err == nil {
			_, err = io.ReadFull(f.conn, buf)
		}
		if err != nil {
			f.broken.Store(&err)
			return
		}
		f.rounds.Add(1)
		time.Sleep(time.Millisecond)
	}
}

// awaitRounds waits for a number of further rounds.
func (f *flow) awaitRounds(rounds int64) {
	f.c.t.Helper()
	until := f.rounds.Load() + rounds
	f.c.until("rounds of the connection", func() bool {
		if err := f.broken.Load(); err != nil {
			f.c.t.Fatalf("the connection broke: %v", *err)
		}
		return f.rounds.Load() >= until
	})
}

// closeAndVerify closes the connection, and fails the test if packets were lost. A retransmission alone is no loss: where a
// host is busy, an answer may take longer than TCP waits. The receiver then gets the segment twice and says so (DSACK, RFC
// 2883), in its next acknowledgment.
func (f *flow) closeAndVerify() {
	f.c.t.Helper()
	f.awaitRounds(2)
	close(f.closing)
	<-f.done
	raw, err := f.conn.SyscallConn()
	if err != nil {
		f.c.t.Fatal(err)
	}
	var info *unix.TCPInfo
	if e := raw.Control(func(fd uintptr) {
		info, err = unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO)
	}); e != nil || err != nil {
		f.c.t.Fatal(e, err)
	}
	_ = f.conn.Close()
	f.c.t.Logf("%d rounds, %d retransmissions, of which %d needless", f.rounds.Load(), info.Total_retrans, info.Dsack_dups)
	if info.Total_retrans > info.Dsack_dups {
		f.c.t.Errorf("%d packets of the connection were lost", info.Total_retrans-info.Dsack_dups)
	}
}

// close closes the connection.
func (f *flow) close() {
	close(f.closing)
	<-f.done
	_ = f.conn.Close()
}

// subnetEnv returns the content of subnet.env.
func (n *node) subnetEnv() string {
	n.c.t.Helper()
	b, err := os.ReadFile(n.subnetFile())
	if err != nil {
		n.c.t.Fatal(err)
	}
	return string(b)
}

// device returns what must not change of the tunnel: index, MAC, MTU and addresses.
func (n *node) device(backend string) string {
	n.c.t.Helper()
	name := map[string]string{"vxlan": "flannel.1", "ipip": "flannel.ipip", "wireguard": "flannel-wg"}[backend]
	if name == "" {
		return ""
	}
	out := nettest.Run(n.c.t, n.ns, "ip", "-o", "-d", "addr", "show", "dev", name)
	var words []string
	index := `^\d+:`
	if backend == "wireguard" { // flannel's flanneld re-creates it
		index = `^$`
	}
	for _, e := range []string{index, `inet \S+`} {
		words = append(words, regexp.MustCompile(e).FindString(out))
	}
	out = nettest.Run(n.c.t, n.ns, "ip", "-o", "-d", "link", "show", "dev", name)
	for _, e := range []string{
		index, `link/\S+ \S+`, `mtu \d+`, `vxlan id \d+ local \S+`, `dstport \d+`, `ipip remote \S+ local \S+`, `wireguard`,
	} {
		words = append(words, regexp.MustCompile(e).FindString(out))
	}
	return strings.Join(words, ", ")
}

// ready reports whether the daemon's health check succeeds.
func (n *node) ready() bool {
	var status string
	err := n.ns.Do(func() error {
		conn, err := net.DialTimeout("tcp", "127.0.0.1:8081", time.Second)
		if err != nil {
			return err
		}
		defer func() { _ = conn.Close() }()
		_ = conn.SetDeadline(time.Now().Add(5 * time.Second))
		if _, err := fmt.Fprint(conn, "GET /readyz HTTP/1.0\r\n\r\n"); err != nil {
			return err
		}
		b, err := io.ReadAll(conn)
		status, _, _ = strings.Cut(string(b), "\r\n")
		return err
	})
	return err == nil && strings.Contains(status, " 200 ")
}

func (c *cluster) expectEqual(what string, want, got any) {
	c.t.Helper()
	if d := cmp.Diff(want, got); d != "" {
		c.t.Errorf("%s (-before +now):\n%s", what, d)
	}
}
