// SPDX-License-Identifier: Apache-2.0

package cniserver

import (
	"runtime"

	"golang.org/x/sys/unix"

	"github.com/weft-net/weft/internal/wire"
)

// pings tells whoever asks that the agent is there, on a thread of its own, until the agent stops.
func (s *Server) pings() {
	runtime.LockOSThread() // the thread ends with the goroutine, and its priority with it
	// Without the right to it, it is done in turn.
	_ = unix.Setpriority(unix.PRIO_PROCESS, unix.Gettid(), -10)
	for !s.closing.Load() {
		wire.Pong(s.socket.ping)
		if !s.closing.Load() {
			s.log.Error("agent does not tell that it is there for a moment: no descriptors?")
			s.rest()
		}
	}
}
