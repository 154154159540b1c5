// SPDX-License-Identifier: Apache-2.0

package rtnl

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/weft-net/weft/internal/kernel/netlink"
	"github.com/weft-net/weft/internal/netns"
)

const (
	// chunk bounds the requests of one write: as many refusals fit into a socket's default buffer.
	chunk = 128
	// askChunk is the same for read requests, whose answers are longer: a link's needs 4 KiB of the buffer.
	askChunk = 32
	// dumpTries bounds how often a dump that changed while it was read is repeated.
	dumpTries = 10
	// looseTries is the same for a dump that need not be exact.
	looseTries = 3
	// datagrams are read by one system call: each answer is one, and most exchanges have no more. The kernel makes the
	// parts of a dump no larger than datagramSize, and a link needs 1,600 bytes.
	datagrams, datagramSize = 4, 8 << 10
)

// Socket is a netlink socket in one network namespace. It is safe for concurrent use; a batch is never interleaved with
// another.
type Socket struct {
	mu     sync.Mutex
	nl     *netlink.Socket
	out    netlink.Batch
	writes atomic.Int64
}

// Open opens a socket inside ns; nil is the process's own namespace. The socket does not need ns afterwards.
func Open(ns *netns.NS) (*Socket, error) {
	nl, err := netlink.Open(ns, netlink.Options{
		Protocol: unix.NETLINK_ROUTE, Datagrams: datagrams, Size: datagramSize, ExtendedAcks: true,
	})
	if err != nil {
		return nil, fmt.Errorf("rtnetlink: %w", err)
	}
	return &Socket{nl: nl}, nil
}

// Close closes the socket.
func (s *Socket) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.nl.Close()
}

// Port returns the socket's netlink port, by which the kernel names the sender of a change.
func (s *Socket) Port() (uint32, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.nl.Port()
}

// Writes returns the number of requests since the socket was opened that change something: tests use it to verify that
// nothing was written.
func (s *Socket) Writes() int { return int(s.writes.Load()) }

// Messages returns the number of requests and answers since the socket was opened.
func (s *Socket) Messages() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return int(s.nl.Messages())
}

// Send sends all requests, in as few writes as possible. The error is Refusals when the kernel refused some for a
// reason that they do not forgive; the others were performed.
func (s *Socket) Send(ctx context.Context, batch []*Message) error {
	for _, m := range batch {
		if !m.asks() {
			s.writes.Add(1)
		}
	}
	return s.batch(ctx, batch, nil)
}

// SendEach is Send for requests that are not in memory at once.
func (s *Socket) SendEach(ctx context.Context, requests iter.Seq[*Message]) error {
	var refused Refusals
	part, sent := make([]*Message, 0, chunk), 0
	send := func() error {
		err := s.Send(ctx, part)
		if some := Refusals(nil); errors.As(err, &some) {
			for _, r := range some {
				r.Index += sent
			}
			refused, err = append(refused, some...), nil
		}
		part, sent = part[:0], sent+len(part)
		return err
	}
	for m := range requests {
		if part = append(part, m); len(part) == chunk {
			if err := send(); err != nil {
				return err
			}
		}
	}
	if err := send(); err != nil {
		return err
	}
	if len(refused) > 0 {
		return refused
	}
	return nil
}

// Query sends read requests that have one answer each and calls f with the answers and their indexes in the batch. A
// missing object has no answer, if the request forgives that. A body is valid during the call only.
func (s *Socket) Query(ctx context.Context, batch []*Message, f func(i int, body []byte)) error {
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
		s.nl.Begin(&s.out)
		s.pack(part)
		err := s.nl.Exchange(&s.out, func(a netlink.Answer) bool {
			i, ok := s.out.Index(a)
			if !ok {
				return false
			}
			if a.Kind != unix.NLMSG_ERROR {
				if f != nil {
					f(sent+i, a.Body)
				}
			} else if errno := a.Errno(); errno != 0 && !part[i].forgives(errno) {
				refused = append(refused, &Refusal{
					Index: sent + i, Type: part[i].Type, What: part[i].what(), Errno: errno, Hint: a.Hint(),
				})
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

// pack writes requests into the socket's batch. The last one requests an acknowledgment, unless it is a read request.
func (s *Socket) pack(part []*Message) {
	for i, m := range part {
		flags := m.Flags
		if i == len(part)-1 && !m.asks() {
			flags |= unix.NLM_F_ACK
		}
		s.out.Add(m.Type, flags, m.Bytes())
	}
}

// Dump reads a table and calls f for every entry, after a dump that the kernel does not mark as inconsistent. The
// kernel applies the filters in the request; a filter with a missing object yields nothing.
func (s *Socket) Dump(ctx context.Context, m *Message, f func(body []byte)) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.nl.Strict() // readers filter again, for kernels that cannot
	var entries [][]byte
	err := netlink.Retry(ctx, dumpTries, func(attempt int) (again bool, err error) {
		entries = nil
		s.nl.Begin(&s.out)
		s.out.Add(m.Type, m.Flags, m.Bytes())
		interrupted, err := s.nl.Dump(&s.out, func(a netlink.Answer) {
			entries = append(entries, append([]byte(nil), a.Body...))
		})
		return interrupted && (!m.Loose || attempt < looseTries-1), err
	})
	var refused *netlink.Refused
	switch {
	case errors.As(err, &refused) && m.forgives(refused.Errno):
		return nil
	case errors.As(err, &refused):
		return &Refusal{What: m.what(), Errno: refused.Errno, Hint: refused.Hint}
	case err != nil:
		return fmt.Errorf("%s: %w", m.what(), err)
	}
	for _, body := range entries {
		f(body)
	}
	return nil
}
