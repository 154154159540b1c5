// SPDX-License-Identifier: Apache-2.0

package serve

import (
	"errors"
	"log/slog"
	"net"
	"sync"
	"syscall"
)

// sender sends answers. Each reason for which that fails is told once: a guest may have it fail as often as it likes.
type sender struct {
	conn net.PacketConn
	log  *slog.Logger
	what string

	mu   sync.Mutex
	said map[syscall.Errno]bool
}

func newSender(conn net.PacketConn, log *slog.Logger, what string) *sender {
	return &sender{conn: conn, log: log, what: what, said: map[syscall.Errno]bool{}}
}

func (s *sender) send(answer []byte, to net.Addr) {
	_, err := s.conn.WriteTo(answer, to)
	if err == nil {
		return
	}
	var reason syscall.Errno // 0 is any other
	_ = errors.As(err, &reason)
	s.mu.Lock()
	again := s.said[reason]
	s.said[reason] = true
	s.mu.Unlock()
	if !again {
		s.log.Warn(s.what+" not sent", "to", to.String(), "error", err.Error())
	}
}
