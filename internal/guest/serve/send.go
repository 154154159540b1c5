// SPDX-License-Identifier: Apache-2.0

package serve

import (
	"errors"
	"log/slog"
	"net"
	"sync"
	"syscall"
)

// sender sends replies. It logs each errno once, because a guest can make sending fail as often as it likes.
type sender struct {
	conn net.PacketConn
	log  *slog.Logger
	what string

	mu     sync.Mutex
	logged map[syscall.Errno]bool
}

func newSender(conn net.PacketConn, log *slog.Logger, what string) *sender {
	return &sender{conn: conn, log: log, what: what, logged: map[syscall.Errno]bool{}}
}

func (s *sender) send(answer []byte, to net.Addr) {
	_, err := s.conn.WriteTo(answer, to)
	if err == nil {
		return
	}
	var reason syscall.Errno // 0 stands for all other errors
	_ = errors.As(err, &reason)
	s.mu.Lock()
	again := s.logged[reason]
	s.logged[reason] = true
	s.mu.Unlock()
	if !again {
		s.log.Warn(s.what+" not sent", "to", to.String(), "err", err)
	}
}
