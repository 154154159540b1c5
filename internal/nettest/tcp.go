// SPDX-License-Identifier: Apache-2.0

package nettest

import (
	"bufio"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/weft-net/weft/internal/netns"
)

// ServeName replies to all TCP connections to a port, of either family, with a name and the client's address, until the
// test ends.
func ServeName(t testing.TB, ns *netns.NS, port int, name string) {
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

// DialName connects and returns the server's name and the client's address as the server saw it; "" when nothing
// replied within limit.
func DialName(ns *netns.NS, to netip.Addr, port int, limit time.Duration) string {
	var output string
	_ = ns.Do(func() error {
		c, err := net.DialTimeout("tcp", netip.AddrPortFrom(to, uint16(port)).String(), limit)
		if err != nil {
			return err
		}
		defer func() { _ = c.Close() }()
		_ = c.SetDeadline(time.Now().Add(limit))
		output, err = bufio.NewReader(c).ReadString('\n')
		return err
	})
	return strings.TrimSpace(output)
}
