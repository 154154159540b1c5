// SPDX-License-Identifier: Apache-2.0

package flowserver

import (
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"net/netip"
	"sync"
)

const (
	// maxPending is how many connections of one source may wait for their token to be accepted. Of IPv6 a source is a prefix
	// of the length sourceBits: a host has as many addresses as it likes.
	maxPending, sourceBits = 16, 64
	// maxReviews is how many tokens are reviewed at the same time, and of one source.
	maxReviews, maxSourceReviews = 16, 4
)

// counters count by source. It is safe for concurrent use.
type counters struct {
	mu  sync.Mutex
	all map[netip.Prefix]int
}

func newCounters() *counters { return &counters{all: map[netip.Prefix]int{}} }

// enter counts one of a source, if there are fewer than a limit.
func (c *counters) enter(source netip.Prefix, limit int) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.all[source] >= limit {
		return false
	}
	c.all[source]++
	return true
}

func (c *counters) leave(source netip.Prefix) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.all[source]--; c.all[source] <= 0 {
		delete(c.all, source)
	}
}

// sourceOf returns the source of a connection.
func sourceOf(a net.Addr) netip.Prefix {
	tcp, ok := a.(*net.TCPAddr)
	if !ok {
		return netip.Prefix{}
	}
	addr := tcp.AddrPort().Addr().Unmap().WithZone("")
	bits := addr.BitLen()
	if addr.Is6() {
		bits = sourceBits
	}
	p, _ := addr.Prefix(bits)
	return p
}

// listener closes connections of sources that have too many without an accepted token: others find places.
type listener struct {
	net.Listener
	pending *counters
}

// Accept returns the next connection of a source that may have it.
func (l listener) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		source := sourceOf(c.RemoteAddr())
		if !l.pending.enter(source, maxPending) {
			_ = c.Close()
			continue
		}
		return &conn{Conn: c, source: source, known: sync.OnceFunc(func() { l.pending.leave(source) })}, nil
	}
}

// conn is a connection. It is pending until known is called, or it is closed.
type conn struct {
	net.Conn
	source netip.Prefix
	known  func()
}

// Close closes the connection.
func (c *conn) Close() error {
	c.known()
	return c.Conn.Close()
}

// connKey is the key of a request's connection in its context.
type connKey struct{}

func withConn(ctx context.Context, c net.Conn) context.Context {
	if secure, ok := c.(*tls.Conn); ok {
		c = secure.NetConn()
	}
	return context.WithValue(ctx, connKey{}, c)
}

// connOf returns the connection of a request.
func connOf(r *http.Request) *conn {
	if c, ok := r.Context().Value(connKey{}).(*conn); ok {
		return c
	}
	return &conn{source: netip.Prefix{}, known: func() {}}
}
