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

// Answer tells all who connect to a port, by TCP of either family, a name and as whom they are heard, until the test
// ends.
func Answer(t testing.TB, ns *netns.NS, port int, name string) {
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

// Call connects, and tells who answered and as whom the caller was heard; "" where nobody did in that time.
func Call(ns *netns.NS, to netip.Addr, port int, limit time.Duration) string {
	var said string
	_ = ns.Do(func() error {
		c, err := net.DialTimeout("tcp", netip.AddrPortFrom(to, uint16(port)).String(), limit)
		if err != nil {
			return err
		}
		defer func() { _ = c.Close() }()
		_ = c.SetDeadline(time.Now().Add(limit))
		said, err = bufio.NewReader(c).ReadString('\n')
		return err
	})
	return strings.TrimSpace(said)
}
