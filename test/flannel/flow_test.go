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

// dial dials from the hub.
func (c *cluster) dial(ctx context.Context, addr string) (conn net.Conn, err error) {
	err = c.hub.Do(func() error {
		conn, err = (&net.Dialer{}).DialContext(ctx, "tcp", addr)
		return err
	})
	return conn, err
}

// flow is a TCP connection between two pods, on which there is always something said and answered.
type flow struct {
	c       *cluster
	conn    *net.TCPConn
	rounds  atomic.Int64
	broken  atomic.Pointer[error]
	closing chan struct{}
	done    chan struct{}
}

// connect connects the pod of one node to that of another.
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
		_ = listener.Close() // the next connection has one of its own
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
	go f.talk()
	return f
}

func (f *flow) talk() {
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

// goesOn waits for so many rounds more.
func (f *flow) goesOn(rounds int64) {
	f.c.t.Helper()
	until := f.rounds.Load() + rounds
	f.c.until("rounds of the connection", func() bool {
		if err := f.broken.Load(); err != nil {
			f.c.t.Fatalf("the connection broke: %v", *err)
		}
		return f.rounds.Load() >= until
	})
}

// end ends the connection, and fails the test when a packet of it had to be sent twice.
func (f *flow) end() {
	f.c.t.Helper()
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
	f.close()
	f.c.t.Logf("%d rounds, %d packets sent twice", f.rounds.Load(), info.Total_retrans)
	if info.Total_retrans > 0 {
		f.c.t.Errorf("%d packets of the connection were lost", info.Total_retrans)
	}
}

// close ends the connection, whatever was lost.
func (f *flow) close() {
	close(f.closing)
	<-f.done
	_ = f.conn.Close()
}

// file is subnet.env.
func (n *node) file() string {
	n.c.t.Helper()
	b, err := os.ReadFile(n.subnetFile())
	if err != nil {
		n.c.t.Fatal(err)
	}
	return string(b)
}

// device is what must stay of the tunnel: index, MAC, MTU and addresses.
func (n *node) device(backend string) string {
	n.c.t.Helper()
	name := map[string]string{"vxlan": "flannel.1", "ipip": "flannel.ipip", "wireguard": "flannel-wg"}[backend]
	if name == "" {
		return ""
	}
	out := nettest.Run(n.c.t, n.ns, "ip", "-o", "-d", "addr", "show", "dev", name)
	var words []string
	index := `^\d+:`
	if backend == "wireguard" { // flannel's own makes it anew
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

// ready tells whether the daemon says that it is.
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

func (c *cluster) same(what string, want, got any) {
	c.t.Helper()
	if d := cmp.Diff(want, got); d != "" {
		c.t.Errorf("%s (-before +now):\n%s", what, d)
	}
}
