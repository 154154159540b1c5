// SPDX-License-Identifier: Apache-2.0

package cniserver

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/weft-net/weft/internal/cni/wire"
)

// How long the parts of a call may take.
const (
	readLimit = 5 * time.Second
	// callLimit leaves attach the time to undo an ADD before the caller gives up.
	callLimit = wire.CallMillis*time.Millisecond - 5*time.Second
)

// atOnce is an answer that fits into the socket's buffer whether or not the caller reads.
const atOnce = 64 << 10 // bytes

// errLate is the cause of the end of a call that took too long.
var errLate = fmt.Errorf("the call took longer than %s: %w", callLimit, context.DeadlineExceeded)

// call is one request on one connection.
type call struct {
	ctx    context.Context
	cancel context.CancelCauseFunc
	start  time.Time
	netns  int    // the descriptor that came with the request, 0 when none did
	frame  []byte // what has been read of the request

	mu   sync.Mutex
	fd   int // the connection, -1 when it is closed
	read bool
}

// look does what is due for the call at the time now.
func (c *call) look(now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	age := now.Sub(c.start)
	switch {
	case age > callLimit:
		c.cancel(errLate)
	case c.fd >= 0 && !c.read && age > readLimit:
		_ = unix.Shutdown(c.fd, unix.SHUT_RDWR) // wakes the worker
	}
}

// receive reads the request. buf is the worker's, the request has memory of its own. With MSG_DONTWAIT among the flags
// the error is EAGAIN when it is not all there yet; it goes on where it was when it is called again.
func (c *call) receive(buf []byte, flags int) (wire.Request, error) {
	if len(c.frame) == 0 {
		n, err := c.first(buf, make([]byte, unix.CmsgSpace(4)), flags)
		if err != nil {
			return wire.Request{}, err
		}
		c.frame = slices.Clone(buf[:n])
	}
	if err := c.more(wire.RequestHeader, flags); err != nil {
		return wire.Request{}, err
	}
	h, err := wire.ParseHeader(c.frame)
	if err != nil {
		return wire.Request{}, err
	}
	if err := c.more(h.Size(), flags); err != nil {
		return wire.Request{}, err
	}
	if h.Netns != (c.netns != 0) {
		return wire.Request{}, errors.New("the namespace's descriptor did not come with the request")
	}
	c.mu.Lock()
	c.read = true
	c.mu.Unlock()
	frame := c.frame
	c.frame = nil
	return wire.ParseRequest(frame)
}

// first reads what comes first, with the descriptor beside it.
func (c *call) first(buf, oob []byte, flags int) (int, error) {
	for {
		n, oobn, _, _, err := unix.Recvmsg(c.fd, buf, oob, unix.MSG_CMSG_CLOEXEC|flags)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return 0, err
		}
		if n == 0 {
			return 0, wire.ErrShort
		}
		return n, c.adopt(oob[:oobn])
	}
}

// adopt takes the descriptor over that came beside the first byte. There is room for one; the kernel closes what is
// more.
func (c *call) adopt(oob []byte) error {
	if len(oob) == 0 {
		return nil
	}
	messages, err := unix.ParseSocketControlMessage(oob)
	if err != nil {
		return err
	}
	for i := range messages {
		fds, err := unix.ParseUnixRights(&messages[i])
		if err != nil {
			return err
		}
		for _, fd := range fds {
			if c.netns != 0 {
				_ = unix.Close(fd)
				continue
			}
			c.netns = fd
		}
	}
	return nil
}

// more reads until the frame has size bytes. What a caller has sent is kept; room is made as it comes, so that a header
// alone costs no memory.
func (c *call) more(size, flags int) error {
	const step = 256 << 10
	for len(c.frame) < size {
		have := len(c.frame)
		c.frame = slices.Grow(c.frame, min(size-have, step))
		n, _, err := unix.Recvfrom(c.fd, c.frame[have:min(cap(c.frame), size)], flags)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return err
		}
		if n == 0 {
			return wire.ErrShort
		}
		c.frame = c.frame[:have+n]
	}
	return nil
}

// abandoned tells whether the caller is gone. An agent that was stopped for a while finds calls of which the runtime
// was told long ago that they failed.
func (c *call) abandoned() bool {
	var b [1]byte
	n, _, err := unix.Recvfrom(c.fd, b[:], unix.MSG_PEEK|unix.MSG_DONTWAIT)
	return err == nil && n == 0 || errors.Is(err, unix.ECONNRESET)
}

// answer ends the call: after it nothing is written any more and the connection is closed.
func (c *call) answer(exit int, out []byte) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	frame := wire.AppendAnswer(make([]byte, 0, wire.AnswerHeader+len(out)), exit, out)
	var err error
	if len(frame) > atOnce {
		err = unix.SetsockoptTimeval(c.fd, unix.SOL_SOCKET, unix.SO_SNDTIMEO, &unix.Timeval{Sec: 5})
	}
	for len(frame) > 0 && err == nil {
		var n int
		n, err = unix.SendmsgN(c.fd, frame, nil, nil, unix.MSG_NOSIGNAL)
		if errors.Is(err, unix.EINTR) {
			err = nil
		}
		frame = frame[max(n, 0):]
	}
	return errors.Join(err, c.shut())
}

// close ends a call that gets no answer.
func (c *call) close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	_ = c.shut()
	if c.netns != 0 {
		_ = unix.Close(c.netns)
	}
	c.cancel(nil)
}

// shut closes the connection; c.mu is held.
func (c *call) shut() error {
	if c.fd < 0 {
		return nil
	}
	err := unix.Close(c.fd)
	c.fd = -1
	return err
}
