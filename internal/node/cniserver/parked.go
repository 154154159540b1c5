// SPDX-License-Identifier: Apache-2.0

package cniserver

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/weft-net/weft/internal/cni/wire"
	"github.com/weft-net/weft/internal/model"
)

// maxParked limits the connections whose request has not arrived yet.
const maxParked = 1024

// parked are the connections on which no or half a request has arrived. They wait in the runtime's poller, which costs
// a goroutine each and no thread; a worker that blocks in a system call costs a thread. The watchdog ends them after
// readLimit.
type parked struct {
	slots chan struct{} // holds a token for each connection
	// calls holds a token for each of them whose request has arrived and is being handled.
	calls chan struct{}
}

func newParked() parked {
	return parked{slots: make(chan struct{}, maxParked), calls: make(chan struct{}, maxWorkers)}
}

// park reads a connection's request in another goroutine, then handles it.
func (s *Server) park(c *call) {
	select {
	case s.parked.slots <- struct{}{}:
	default:
		defer s.end(c)
		exit, out := failure(model.Errorf(model.CodeTryAgain, "close connections that send nothing",
			"%d connections have not sent their request", maxParked), "")
		_ = c.answer(exit, out)
		return
	}
	s.workers.Go(func() {
		r, err := c.await()
		<-s.parked.slots
		s.parked.calls <- struct{}{}
		defer func() { <-s.parked.calls }()
		s.serve(c, r, err)
	})
}

// await waits for the request. The poller gets a duplicate of the descriptor.
func (c *call) await() (r wire.Request, err error) {
	fd, err := unix.FcntlInt(uintptr(c.fd), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return r, fmt.Errorf("caller: %w", err)
	}
	if err := unix.SetNonblock(fd, true); err != nil { // affects both descriptors, which share the open file description
		return r, errors.Join(fmt.Errorf("caller: %w", err), unix.Close(fd))
	}
	f := os.NewFile(uintptr(fd), "caller")
	defer func() { _ = f.Close() }()
	raw, err := f.SyscallConn()
	if err != nil {
		return r, err
	}
	var buf []byte
	polled := raw.Read(func(uintptr) bool {
		if buf == nil && len(c.frame) == 0 {
			buf = make([]byte, 4<<10)
		}
		r, err = c.receive(buf, unix.MSG_DONTWAIT)
		return !errors.Is(err, unix.EAGAIN)
	})
	return r, errors.Join(err, polled, unix.SetNonblock(c.fd, false))
}
