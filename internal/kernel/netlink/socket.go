// SPDX-License-Identifier: Apache-2.0

package netlink

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/weft-net/weft/internal/netns"
)

// ErrNoAnswer is wrapped by the error of an exchange that the kernel did not answer, or whose answers it dropped.
var ErrNoAnswer = errors.New("kernel did not answer")

// Options are the differences between the families' sockets.
type Options struct {
	// Protocol is the netlink family: unix.NETLINK_ROUTE, unix.NETLINK_NETFILTER.
	Protocol int
	// Buffer is the size of the send and of the receive buffer; 0 keeps the system's default.
	Buffer int
	// Datagrams are read by one system call, each of at most Size bytes.
	Datagrams, Size int
	// ExtendedAcks requests the kernel's own messages about refusals, ShortAcks refusals that do not quote the request.
	// An older kernel without them answers nevertheless.
	ExtendedAcks, ShortAcks bool
}

// Socket exchanges batches with the kernel, in one network namespace. It is not safe for concurrent use: users that
// share it lock a mutex around an exchange.
type Socket struct {
	fd       int
	seq      uint32
	unread   bool // unread answers may remain
	strict   bool
	in       inbox
	messages int64
	bytes    int64
}

// Open opens a socket inside ns; nil is the process's own namespace. The socket does not need ns afterwards.
func Open(ns *netns.NS, o Options) (*Socket, error) {
	s := &Socket{fd: -1, seq: 1, in: inbox{count: o.Datagrams, size: o.Size}}
	fd, err := open(ns, o.Protocol)
	if err != nil {
		return nil, err
	}
	if o.Buffer > 0 {
		if err := growBuffers(fd, o.Buffer); err != nil {
			_ = unix.Close(fd)
			return nil, err
		}
	}
	if o.ExtendedAcks {
		_ = unix.SetsockoptInt(fd, unix.SOL_NETLINK, unix.NETLINK_EXT_ACK, 1)
	}
	if o.ShortAcks {
		_ = unix.SetsockoptInt(fd, unix.SOL_NETLINK, unix.NETLINK_CAP_ACK, 1)
	}
	s.fd = fd
	return s, nil
}

func open(ns *netns.NS, protocol int) (fd int, err error) {
	err = ns.Do(func() (err error) {
		fd, err = unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, protocol)
		return err
	})
	if err != nil {
		return -1, fmt.Errorf("netlink socket: %w", err)
	}
	return fd, nil
}

// growBuffers sets the size of both buffers. Without CAP_NET_ADMIN in the initial user namespace the result is limited
// by the system's maximum.
func growBuffers(fd, size int) error {
	for _, opt := range []struct{ force, plain int }{
		{unix.SO_SNDBUFFORCE, unix.SO_SNDBUF}, {unix.SO_RCVBUFFORCE, unix.SO_RCVBUF},
	} {
		if unix.SetsockoptInt(fd, unix.SOL_SOCKET, opt.force, size) == nil {
			continue
		}
		if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, opt.plain, size); err != nil {
			return fmt.Errorf("netlink socket: buffer: %w", err)
		}
	}
	return nil
}

// Close closes the socket.
func (s *Socket) Close() error {
	if s.fd < 0 {
		return nil
	}
	err := unix.Close(s.fd)
	s.fd = -1
	return err
}

// Begin empties a batch and continues the numbering of the socket's messages.
func (s *Socket) Begin(b *Batch) { b.Reset(s.seq) }

// Exchange sends a batch in one write and calls f for each answer, until f returns true for the last one.
func (s *Socket) Exchange(b *Batch, f func(Answer) (last bool)) error { return s.exchange(b, true, f) }

// Dump sends a batch with one request for a table and calls f for each entry. interrupted means that the table changed
// meanwhile. The error wraps the kernel's error number if it refused.
func (s *Socket) Dump(b *Batch, f func(Answer)) (interrupted bool, err error) {
	var refused error
	b.AddFlags(unix.NLM_F_DUMP)
	err = s.exchange(b, false, func(a Answer) bool {
		if _, ok := b.Index(a); !ok {
			return false
		}
		interrupted = interrupted || a.Flags&unix.NLM_F_DUMP_INTR != 0
		if !a.Done() {
			f(a)
			return false
		}
		if errno := a.Errno(); errno != 0 {
			refused = &Refused{errno, a.Hint()}
		}
		return true
	})
	if err == nil {
		err = refused
	}
	return interrupted, err
}

// Refused is the kernel's refusal of a dump.
type Refused struct {
	Errno unix.Errno
	Hint  string
}

func (r *Refused) Error() string { return r.Errno.Error() }

// Unwrap returns the error number.
func (r *Refused) Unwrap() error { return r.Errno }

func (s *Socket) exchange(b *Batch, quick bool, f func(Answer) (last bool)) error {
	if s.fd < 0 {
		return fmt.Errorf("netlink socket: %w", os.ErrClosed)
	}
	b.Close()
	s.seq = b.first + b.count
	s.drain()
	if err := s.send(b.buf); err != nil {
		return err
	}
	s.messages += int64(b.count)
	s.bytes += int64(len(b.buf))
	s.unread = true
	for {
		datagrams, err := s.in.read(s.fd, quick)
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case errors.Is(err, unix.EAGAIN):
			s.unread = false
			return ErrNoAnswer
		case err != nil:
			return fmt.Errorf("netlink receive: %w", err)
		}
		done := false
		for _, d := range datagrams {
			s.bytes += int64(len(d))
			Messages(d, func(a Answer) {
				s.messages++
				done = f(a) || done
			})
		}
		if done {
			s.unread = false
			return nil
		}
	}
}

func (s *Socket) send(b []byte) error {
	for {
		switch _, err := unix.Write(s.fd, b); {
		case errors.Is(err, unix.EINTR):
		case err != nil:
			return fmt.Errorf("netlink send %d bytes: %w", len(b), err)
		default:
			return nil
		}
	}
}

// drain drops the unread answers of a failed exchange.
func (s *Socket) drain() {
	for s.unread {
		_, err := s.in.read(s.fd, false)
		s.unread = err == nil || errors.Is(err, unix.EINTR) || errors.Is(err, unix.ENOBUFS)
	}
}

// Strict makes the kernel apply the filters of dumps. Without it (before Linux 4.20) dumps contain more than requested.
func (s *Socket) Strict() {
	if !s.strict {
		_ = unix.SetsockoptInt(s.fd, unix.SOL_NETLINK, unix.NETLINK_GET_STRICT_CHK, 1)
		s.strict = true
	}
}

// Messages returns the number of requests and answers since the socket was opened.
func (s *Socket) Messages() int64 { return s.messages }

// Bytes returns the size of these requests and answers.
func (s *Socket) Bytes() int64 { return s.bytes }

// Port returns the socket's netlink port, by which the kernel names the sender of a change.
func (s *Socket) Port() (uint32, error) {
	for range 2 {
		name, err := unix.Getsockname(s.fd)
		if err != nil {
			return 0, fmt.Errorf("netlink socket: %w", err)
		}
		if sa, ok := name.(*unix.SockaddrNetlink); ok && sa.Pid != 0 {
			return sa.Pid, nil
		}
		if err := unix.Bind(s.fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
			return 0, fmt.Errorf("netlink socket: %w", err)
		}
	}
	return 0, errors.New("netlink socket: it has no port")
}
