// SPDX-License-Identifier: Apache-2.0

package matrix

import (
	"bufio"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/weft-net/weft/internal/netns"
	"github.com/weft-net/weft/internal/nettest"
)

// ping sends until an answer comes: the first packets may meet a port that is not ready.
func ping(t *testing.T, from *netns.NS, to netip.Addr) {
	t.Helper()
	var out string
	var err error
	for range 10 {
		if out, err = nettest.Try(from, "ping", "-n", "-c", "1", "-W", "2", to.String()); err == nil {
			return
		}
	}
	t.Errorf("ping %s: %v\n%s", to, err, out)
}

// serve answers connections in a namespace with a name, and with who called.
func serve(t *testing.T, ns *netns.NS, port int, name string) {
	t.Helper()
	for _, family := range []string{"tcp4", "tcp6"} {
		var l net.Listener
		err := ns.Do(func() (err error) {
			l, err = net.Listen(family, fmt.Sprintf(":%d", port))
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = l.Close() })
		go func() {
			for {
				c, err := l.Accept()
				if err != nil {
					return
				}
				host, _, _ := net.SplitHostPort(c.RemoteAddr().String())
				_, _ = fmt.Fprintf(c, "%s %s\n", name, host)
				_ = c.Close()
			}
		}()
	}
}

// call connects, and tells who answered and as whom it was heard; "" where nobody did in that time.
func call(ns *netns.NS, to netip.Addr, port int, limit time.Duration) string {
	var said string
	_ = ns.Do(func() error {
		c, err := net.DialTimeout("tcp", netip.AddrPortFrom(to, uint16(port)).String(), limit)
		if err != nil {
			return err
		}
		defer c.Close()
		_ = c.SetDeadline(time.Now().Add(limit))
		said, err = bufio.NewReader(c).ReadString('\n')
		return err
	})
	return strings.TrimSpace(said)
}

func called(t *testing.T, ns *netns.NS, to netip.Addr, port int, want string) {
	t.Helper()
	if got := call(ns, to, port, 10*time.Second); got != want {
		t.Errorf("call of %s port %d: %q, want %q", to, port, got, want)
	}
}
