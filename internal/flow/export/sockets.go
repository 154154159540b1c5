// SPDX-License-Identifier: Apache-2.0

package export

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Dial connects, as net.Dialer does.
type Dial func(ctx context.Context, network, address string) (net.Conn, error)

// Sockets are the connections that exporters make, so that they are no flows: exported, they would be reports about reports.
// It is safe for concurrent use.
type Sockets struct {
	now func() time.Time

	mu  sync.Mutex
	all map[socket]time.Time // until when they are known; zero: they are open
}

// socket identifies a connection of this host.
type socket struct {
	proto uint8
	port  uint16 // the local one
	to    netip.AddrPort
}

const (
	// socketLinger is how long a connection that ended, or could not be made, is known: the kernel reports it later.
	socketLinger = 10 * time.Second
	dialTime     = 5 * time.Second
)

// NewSockets returns a Sockets.
func NewSockets(now func() time.Time) *Sockets {
	return &Sockets{now: now, all: map[socket]time.Time{}}
}

// Has reports whether a connection of this host, from a local port, is an exporter's.
func (s *Sockets) Has(proto uint8, port uint16, to netip.AddrPort) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	until, has := s.all[socket{proto, port, to}]
	return has && (until.IsZero() || s.now().Before(until))
}

// Dial connects. The connection is known before its first packet is sent.
func (s *Sockets) Dial(ctx context.Context, network, address string) (net.Conn, error) {
	var mine []socket // guarded by s.mu: addresses of both families are tried at the same time
	d := net.Dialer{Timeout: dialTime, Control: func(network, address string, c syscall.RawConn) error {
		one, err := bind(network, address, c)
		if err != nil {
			return err
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		s.sweepLocked()
		mine, s.all[one] = append(mine, one), time.Time{}
		return nil
	}}
	c, err := d.DialContext(ctx, network, address)
	end := func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		for _, one := range mine {
			s.all[one] = s.now().Add(socketLinger)
		}
	}
	if err != nil {
		end()
		return nil, err
	}
	return &known{Conn: c, end: sync.OnceFunc(end)}, nil
}

func (s *Sockets) sweepLocked() {
	for one, until := range s.all {
		if !until.IsZero() && !s.now().Before(until) {
			delete(s.all, one)
		}
	}
}

// known is a connection.
type known struct {
	net.Conn
	end func()
}

// Close closes the connection.
func (c *known) Close() error {
	defer c.end()
	return c.Conn.Close()
}

// bind chooses a local port for a socket that is about to be connected.
func bind(network, address string, c syscall.RawConn) (socket, error) {
	to, err := netip.ParseAddrPort(address)
	if err != nil {
		return socket{}, fmt.Errorf("address %q: %w", address, err)
	}
	one := socket{proto: unix.IPPROTO_TCP, to: netip.AddrPortFrom(to.Addr().Unmap().WithZone(""), to.Port())}
	if strings.HasPrefix(network, "udp") {
		one.proto = unix.IPPROTO_UDP
	}
	var failed error
	err = c.Control(func(fd uintptr) {
		var any unix.Sockaddr = &unix.SockaddrInet4{}
		if strings.HasSuffix(network, "6") {
			any = &unix.SockaddrInet6{}
		}
		if failed = unix.Bind(int(fd), any); failed != nil {
			return
		}
		var local unix.Sockaddr
		if local, failed = unix.Getsockname(int(fd)); failed != nil {
			return
		}
		switch l := local.(type) {
		case *unix.SockaddrInet4:
			one.port = uint16(l.Port)
		case *unix.SockaddrInet6:
			one.port = uint16(l.Port)
		}
	})
	if err = errors.Join(err, failed); err != nil {
		return socket{}, fmt.Errorf("local port: %w", err)
	}
	return one, nil
}
