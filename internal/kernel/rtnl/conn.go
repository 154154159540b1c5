// SPDX-License-Identifier: Apache-2.0

package rtnl

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/weft-net/weft/internal/netns"
)

const (
	// chunk bounds the requests of one write: as many refusals fit into a socket's default buffer.
	chunk = 128
	// askChunk is the same for questions, whose answers are longer: a link's takes 4 KiB of the buffer.
	askChunk = 32
	// dumpTries bounds how often a dump that changed while it was read is asked for again.
	dumpTries = 10
	// looseTries does so for one that need not be exact.
	looseTries = 3
)

// Socket is a netlink socket in one network namespace. It is safe for concurrent use; a batch is never interleaved with
// another.
type Socket struct {
	mu     sync.Mutex
	fd     int
	seq    uint32
	strict bool
	unread bool
	in     inbox
	out    []byte
	writes atomic.Int64
	told   atomic.Int64
}

// Open opens a socket inside ns; nil is the process's own namespace. The socket does not need ns afterwards.
func Open(ns *netns.NS) (*Socket, error) {
	s := &Socket{fd: -1}
	err := ns.Do(func() (err error) {
		s.fd, err = unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, unix.NETLINK_ROUTE)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("rtnetlink socket: %w", err)
	}
	// The kernel's own words for its refusals; one that has none is as good.
	_ = unix.SetsockoptInt(s.fd, unix.SOL_NETLINK, unix.NETLINK_EXT_ACK, 1)
	return s, nil
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

// Writes counts the requests sent since the socket was opened that change something: what tests look at to see that
// nothing was written.
func (s *Socket) Writes() int { return int(s.writes.Load()) }

// Messages counts the requests and answers since the socket was opened.
func (s *Socket) Messages() int { return int(s.told.Load()) }

// Send sends all requests, in as few writes as possible. The error is Refusals when the kernel refused some that do not
// forgive the reason; the others were carried out.
func (s *Socket) Send(ctx context.Context, batch []*Message) error {
	for _, m := range batch {
		if !m.asks() {
			s.writes.Add(1)
		}
	}
	return s.batch(ctx, batch, nil)
}

// Ask sends questions that have one answer each and hands them to f with their place in the batch. What is not there, as
// far as the question forgives that, has no answer. A body is valid during the call only.
func (s *Socket) Ask(ctx context.Context, batch []*Message, f func(i int, body []byte)) error {
	return s.batch(ctx, batch, f)
}

func (s *Socket) batch(ctx context.Context, batch []*Message, f func(int, []byte)) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	most := chunk
	if f != nil {
		most = askChunk
	}
	var refused Refusals
	for sent := 0; len(batch) > 0; {
		if err := ctx.Err(); err != nil {
			return fmt.Errorf("%s: %w", batch[0].what(), err)
		}
		part := batch[:min(most, len(batch))]
		first := s.seq + 1
		s.seq += uint32(len(part))
		s.pack(part, first)
		s.told.Add(int64(len(part)))
		err := s.exchange(func(a answer) bool {
			i := int(a.seq - first)
			if i < 0 || i >= len(part) {
				return false
			}
			if a.kind != unix.NLMSG_ERROR {
				if f != nil {
					f(sent+i, a.body)
				}
			} else if errno, hint := a.refusal(); errno != 0 && !part[i].forgives(errno) {
				refused = append(refused, &Refusal{Index: sent + i, Type: part[i].Type, What: part[i].what(), Errno: errno, Hint: hint})
			}
			return i == len(part)-1
		})
		if err != nil {
			return fmt.Errorf("%s: %w", part[0].what(), err)
		}
		batch, sent = batch[len(part):], sent+len(part)
	}
	if len(refused) > 0 {
		return refused
	}
	return nil
}

// pack writes requests into the socket's buffer. The last one asks for an acknowledgement, unless it is a question.
func (s *Socket) pack(part []*Message, first uint32) {
	s.out = s.out[:0]
	for i, m := range part {
		flags := uint16(0)
		if i == len(part)-1 && !m.asks() {
			flags = unix.NLM_F_ACK
		}
		s.out = m.append(s.out, first+uint32(i), flags)
	}
}

// Dump asks for a table and hands every entry to f, after a dump that the kernel does not mark as inconsistent. The
// kernel obeys the filters that are in the question; one that names something that is not there gives nothing.
func (s *Socket) Dump(ctx context.Context, m *Message, f func(body []byte)) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.strict {
		// Without strict checking (before Linux 4.20) more is dumped than was asked for; readers filter again.
		_ = unix.SetsockoptInt(s.fd, unix.SOL_NETLINK, unix.NETLINK_GET_STRICT_CHK, 1)
		s.strict = true
	}
	for try := range dumpTries {
		if err := ctx.Err(); err != nil {
			return fmt.Errorf("%s: %w", m.what(), err)
		}
		parts, torn, err := s.dump(m)
		var refusal *Refusal
		switch {
		case errors.As(err, &refusal) && m.forgives(refusal.Errno):
			return nil
		case err != nil:
			return err
		case torn && (!m.Loose || try < looseTries-1):
			continue
		}
		for _, body := range parts {
			f(body)
		}
		return nil
	}
	return fmt.Errorf("%s: %w", m.what(), ErrTorn)
}

func (s *Socket) dump(m *Message) (parts [][]byte, torn bool, err error) {
	s.seq++
	seq := s.seq
	s.out = m.append(s.out[:0], seq, unix.NLM_F_DUMP)
	s.told.Add(1)
	var refusal *Refusal
	err = s.exchange(func(a answer) bool {
		if a.seq != seq {
			return false
		}
		torn = torn || a.flags&unix.NLM_F_DUMP_INTR != 0
		if a.kind != unix.NLMSG_DONE && a.kind != unix.NLMSG_ERROR {
			parts = append(parts, append([]byte(nil), a.body...))
			return false
		}
		if errno, hint := a.refusal(); errno != 0 {
			refusal = &Refusal{What: m.what(), Errno: errno, Hint: hint}
		}
		return true
	})
	switch {
	case err != nil:
		err = fmt.Errorf("%s: %w", m.what(), err)
	case refusal != nil:
		err = refusal
	}
	return parts, torn, err
}
