// SPDX-License-Identifier: Apache-2.0

package rtnl

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/weft-net/weft/internal/netns"
)

const (
	// patience bounds the wait for the kernel's answer to one batch; rtnetlink answers within the send, so this is only
	// reached when an answer was lost.
	patience = 10 * time.Second
	// window is how many bytes of requests are sent at once.
	window = 256 << 10
	// dumpTries bounds how often a dump that changed while it was read is asked for again.
	dumpTries = 8
)

// Socket is a netlink socket in one network namespace. It is safe for concurrent use; a batch is never interleaved with
// another.
type Socket struct {
	mu     sync.Mutex
	fd     int
	seq    uint32
	buf    []byte
	out    []byte
	writes int
}

// Open opens a socket inside ns; nil is the process's own namespace.
func Open(ns *netns.NS) (*Socket, error) {
	s := &Socket{fd: -1, buf: make([]byte, 64<<10)}
	err := ns.Do(func() error {
		fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_ROUTE)
		if err != nil {
			return fmt.Errorf("rtnetlink socket: %w", err)
		}
		s.fd = fd
		return nil
	})
	if err != nil {
		return nil, err
	}
	if err := s.configure(); err != nil {
		_ = unix.Close(s.fd)
		return nil, fmt.Errorf("rtnetlink socket: %w", err)
	}
	return s, nil
}

func (s *Socket) configure() error {
	tv := unix.NsecToTimeval(int64(patience))
	// The kernel without strict checking (before 4.20) dumps more than was asked for; readers filter again.
	_ = unix.SetsockoptInt(s.fd, unix.SOL_NETLINK, unix.NETLINK_GET_STRICT_CHK, 1)
	_ = unix.SetsockoptInt(s.fd, unix.SOL_NETLINK, unix.NETLINK_EXT_ACK, 1)
	_ = unix.SetsockoptInt(s.fd, unix.SOL_NETLINK, unix.NETLINK_CAP_ACK, 1)
	return errors.Join(
		unix.SetsockoptTimeval(s.fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &tv),
		unix.SetsockoptInt(s.fd, unix.SOL_SOCKET, unix.SO_RCVBUF, 2<<20),
		unix.SetsockoptInt(s.fd, unix.SOL_SOCKET, unix.SO_SNDBUF, 2*window),
	)
}

// Close closes the socket.
func (s *Socket) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.fd < 0 {
		return nil
	}
	err := unix.Close(s.fd)
	s.fd = -1
	return err
}

// Writes counts the requests sent by Send since the socket was opened: what tests look at to see that nothing was
// written.
func (s *Socket) Writes() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.writes
}

// Refusal is what the kernel said to one request of a batch.
type Refusal struct {
	Index int // in the batch
	What  string
	Errno unix.Errno
	// Hint is the kernel's own words (extended acknowledgement), may be empty.
	Hint string
}

// Error names the request and the refusal.
func (r *Refusal) Error() string {
	if r.Hint != "" {
		return fmt.Sprintf("%s: %v: %s", r.What, r.Errno, r.Hint)
	}
	return fmt.Sprintf("%s: %v", r.What, r.Errno)
}

// Unwrap is the error number.
func (r *Refusal) Unwrap() error { return r.Errno }

// Send sends all requests as one batch and returns the kernel's refusals, each with the request's place in the batch. The
// error is about the socket itself.
func (s *Socket) Send(batch []*Message) ([]*Refusal, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.writes += len(batch)
	var refused []*Refusal
	for first := 0; first < len(batch); {
		s.out = s.out[:0]
		base, n := s.seq+1, 0
		for first+n < len(batch) && (n == 0 || len(s.out) < window/2) {
			flags := uint16(0)
			if first+n == len(batch)-1 || len(s.out) >= window/2-8192 {
				flags = unix.NLM_F_ACK
			}
			s.out = batch[first+n].append(s.out, base+uint32(n), flags)
			n++
			if flags != 0 {
				break
			}
		}
		s.seq = base + uint32(n) - 1
		part := batch[first : first+n]
		err := s.roundTrip(s.seq, func(h header, body []byte) error {
			if r := refusal(h, body); r != nil {
				r.Index = first + int(h.seq-base)
				r.What = part[h.seq-base].What
				refused = append(refused, r)
			}
			return nil
		}, base)
		if err != nil {
			return refused, err
		}
		first += n
	}
	return refused, nil
}

// Get sends one request for each message and hands every answer to f with the message's index; refusals (ENOENT, ENODEV)
// come as f's errno.
func (s *Socket) Get(batch []*Message, f func(i int, kind uint16, body []byte, errno unix.Errno)) error {
	if len(batch) == 0 {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.out = s.out[:0]
	base := s.seq + 1
	for i, m := range batch {
		flags := uint16(0)
		if i == len(batch)-1 {
			flags = unix.NLM_F_ACK
		}
		s.out = m.append(s.out, base+uint32(i), flags)
	}
	s.seq = base + uint32(len(batch)) - 1
	return s.roundTrip(s.seq, func(h header, body []byte) error {
		i := int(h.seq - base)
		if h.kind == unix.NLMSG_ERROR {
			if r := refusal(h, body); r != nil {
				f(i, 0, nil, r.Errno)
			}
			return nil
		}
		f(i, h.kind, body, 0)
		return nil
	}, base)
}

// errInterrupted says that a dump changed while it was read.
var errInterrupted = errors.New("dump was interrupted by a change")

// Dump asks for a table and hands every entry to f. A dump that the kernel marks as inconsistent is asked for again, so
// f collects into something that reset empties.
func (s *Socket) Dump(m *Message, reset func(), f func(kind uint16, body []byte)) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for range dumpTries {
		reset()
		s.seq++
		s.out = m.append(s.out[:0], s.seq, unix.NLM_F_DUMP)
		torn := false
		err := s.roundTrip(s.seq, func(h header, body []byte) error {
			torn = torn || h.flags&unix.NLM_F_DUMP_INTR != 0
			if h.kind == unix.NLMSG_ERROR {
				if r := refusal(h, body); r != nil {
					r.What = m.What
					return r
				}
				return nil
			}
			if h.kind != unix.NLMSG_DONE {
				f(h.kind, body)
			}
			return nil
		}, s.seq)
		if err != nil || !torn {
			return err
		}
	}
	return fmt.Errorf("%s: %w", m.What, errInterrupted)
}
