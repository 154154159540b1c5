// SPDX-License-Identifier: Apache-2.0

package handover

import (
	"fmt"
	"io"
	"net"
	"time"
)

const (
	hello = 'w' // who gives is there, and this caller's turn has come
	ready = 'g' // who takes holds no sockets of before any more
)

// Greet is the first word of who gives, who then waits until the other side is ready: sockets that it still held would
// keep others from being opened on the same wires. The connection of one who is late is closed.
func Greet(c *net.UnixConn, patience time.Duration) error {
	late := time.AfterFunc(patience, func() { _ = c.Close() })
	defer late.Stop()
	if _, err := c.Write([]byte{hello}); err != nil {
		return fmt.Errorf("hand-over: %w", err)
	}
	return expect(c, ready)
}

// Hear waits for the first word of who gives, as long as the connection is open.
func Hear(c *net.UnixConn) error { return expect(c, hello) }

// Answer says that wires may be given.
func Answer(c *net.UnixConn) error {
	if _, err := c.Write([]byte{ready}); err != nil {
		return fmt.Errorf("hand-over: %w", err)
	}
	return nil
}

func expect(c io.Reader, word byte) error {
	var b [1]byte
	if _, err := io.ReadFull(c, b[:]); err != nil {
		return fmt.Errorf("hand-over: %w", err)
	}
	if b[0] != word {
		return fmt.Errorf("hand-over: %q where %q was expected", b[:], word)
	}
	return nil
}
