// SPDX-License-Identifier: Apache-2.0

package adminapi

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/netns"
)

// connKey is the context key of a request's connection.
type connKey struct{}

// listener accepts connections that collect the file descriptors passed over them.
type listener struct{ net.Listener }

func (l listener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	u, ok := c.(*net.UnixConn)
	if !ok {
		return nil, errors.Join(errors.New("not a unix socket"), c.Close())
	}
	return &conn{UnixConn: u, fd: -1}, nil
}

// conn keeps the first file descriptor that arrives for a request and closes all others.
type conn struct {
	*net.UnixConn
	mu sync.Mutex
	fd int // -1: none, or taken
}

// maxControl is the size of the control message buffer of one read, in bytes: two descriptors, so that a second one is
// received and closed.
func maxControl() int { return unix.CmsgSpace(2 * 4) }

func (c *conn) Read(b []byte) (int, error) {
	control := make([]byte, maxControl())
	n, nc, flags, _, err := c.ReadMsgUnix(b, control)
	if nc > 0 {
		c.keep(control[:nc])
	}
	if err == nil && flags&unix.MSG_CTRUNC != 0 {
		err = errors.New("too many file descriptors in one request")
	}
	return n, err
}

func (c *conn) keep(control []byte) {
	messages, err := unix.ParseSocketControlMessage(control)
	if err != nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for i := range messages {
		fds, err := unix.ParseUnixRights(&messages[i])
		if err != nil {
			continue
		}
		for _, fd := range fds {
			if c.fd < 0 {
				c.fd = fd
			} else {
				_ = unix.Close(fd)
			}
		}
	}
}

// take returns the descriptor; the caller closes it.
func (c *conn) take() (int, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	fd := c.fd
	c.fd = -1
	return fd, fd >= 0
}

func (c *conn) Close() error {
	if fd, ok := c.take(); ok {
		_ = unix.Close(fd)
	}
	return c.UnixConn.Close()
}

// Namespace returns the network namespace that was passed with a request, or nil. Its name is the client's path. The
// caller closes it.
func Namespace(r *http.Request, path string) (*netns.NS, error) {
	c, ok := r.Context().Value(connKey{}).(*conn)
	if !ok {
		return nil, nil
	}
	fd, ok := c.take()
	if !ok {
		return nil, nil
	}
	ns, err := netns.FromFD(fd, path)
	if err != nil {
		return nil, model.Errorf(model.CodeInvalidNetns, "", "namespace %q: %w", path, err)
	}
	return ns, nil
}

// dial connects to a socket. A namespace that is not nil is sent with the first bytes.
func dial(ctx context.Context, socket string, ns *netns.NS) (net.Conn, error) {
	c, err := new(net.Dialer).DialContext(ctx, "unix", socket)
	if err != nil || ns == nil {
		return c, err
	}
	u, ok := c.(*net.UnixConn)
	if !ok {
		return nil, errors.Join(fmt.Errorf("%s is not a unix socket", socket), c.Close())
	}
	return &sender{UnixConn: u, ns: ns}, nil
}

// sender sends a namespace's file descriptor with the first bytes.
type sender struct {
	*net.UnixConn
	ns *netns.NS // nil: sent
}

func (s *sender) Write(b []byte) (int, error) {
	if s.ns == nil || len(b) == 0 {
		return s.UnixConn.Write(b)
	}
	n, _, err := s.WriteMsgUnix(b, unix.UnixRights(s.ns.Fd()), nil)
	s.ns = nil
	if err == nil && n < len(b) {
		var more int
		more, err = s.UnixConn.Write(b[n:])
		n += more
	}
	return n, err
}
