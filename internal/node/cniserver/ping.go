// SPDX-License-Identifier: Apache-2.0

package cniserver

import (
	"errors"

	"golang.org/x/sys/unix"

	"github.com/weft-net/weft/internal/cni/wire"
)

// pings answers the ping socket until the agent stops. Under hundreds of calls this goroutine is scheduled too late, so
// then workers answer pings too, between two calls.
func (s *Server) pings() {
	for !s.closing.Load() {
		waiting := []unix.PollFd{{Fd: int32(s.socket.ping), Events: unix.POLLIN}}
		_, err := unix.Poll(waiting, -1)
		if err == nil {
			err = s.answerPings()
		}
		if err != nil && !errors.Is(err, unix.EINTR) && !s.closing.Load() {
			s.pause("liveness accept failed", err)
		}
	}
}

// answerPingsIfBusy answers pings between two calls of a busy agent.
func (s *Server) answerPingsIfBusy() {
	if s.all.Load() > busyWorkers {
		_ = s.answerPings()
	}
}

// answerPings sends an empty answer to every client that waits at the ping socket.
func (s *Server) answerPings() error {
	answer := wire.AppendAnswer(nil, 0, nil)
	for {
		fd, err := accept(s.socket.ping)
		if errors.Is(err, unix.EAGAIN) {
			return nil
		}
		if err != nil {
			return err
		}
		// An error means that the client has disconnected.
		_, _ = unix.SendmsgN(fd, answer, nil, nil, unix.MSG_NOSIGNAL|unix.MSG_DONTWAIT)
		_ = unix.Close(fd)
	}
}

// accept accepts the next connection of a listening socket.
func accept(fd int) (int, error) {
	for {
		conn, _, err := unix.Accept4(fd, unix.SOCK_CLOEXEC)
		if !errors.Is(err, unix.EINTR) && !errors.Is(err, unix.ECONNABORTED) {
			return conn, err
		}
	}
}
