// SPDX-License-Identifier: Apache-2.0

package handover

import (
	"fmt"
	"io"
	"net"
	"time"
)

const (
	hello = 'w' // from the server: it serves this client next
	ready = 'g' // from the client: it has closed the sockets that it received before
)

// Hello greets the client and waits until the client is ready: sockets that it still holds would prevent new ones from
// being bound on the same links. Hello closes the connection after the timeout.
func Hello(c *net.UnixConn, timeout time.Duration) error {
	late := time.AfterFunc(timeout, func() { _ = c.Close() })
	defer late.Stop()
	if _, err := c.Write([]byte{hello}); err != nil {
		return fmt.Errorf("hand-over: %w", err)
	}
	return expect(c, ready)
}

// WaitHello waits for the server's hello as long as the connection is open.
func WaitHello(c *net.UnixConn) error { return expect(c, hello) }

// Ready reports to the server that it can send interfaces.
func Ready(c *net.UnixConn) error {
	if _, err := c.Write([]byte{ready}); err != nil {
		return fmt.Errorf("hand-over: %w", err)
	}
	return nil
}

func expect(c io.Reader, want byte) error {
	var b [1]byte
	if _, err := io.ReadFull(c, b[:]); err != nil {
		return fmt.Errorf("hand-over: %w", err)
	}
	if b[0] != want {
		return fmt.Errorf("hand-over: got %q, want %q", b[:], want)
	}
	return nil
}
