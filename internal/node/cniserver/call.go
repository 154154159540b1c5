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

// Limits of the parts of a call.
const (
	readLimit = 5 * time.Second
	// callLimit leaves attach enough time to roll back an ADD before the caller gives up.
	callLimit = wire.CallMillis*time.Millisecond - 5*time.Second
)

// socketBuffer is the size of a response that fits into the socket's buffer even if the caller does not read.
const socketBuffer = 64 << 10 // bytes

// errLate is the cancellation cause of a call that took too long.
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

// enforceLimits applies the call's limits at the time now.
func (c *call) enforceLimits(now time.Time) {
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

// receive reads the request. The buffer is the worker's; the request is copied. With MSG_DONTWAIT in flags it returns
// EAGAIN if the request is not complete yet, and continues when it is called again.
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
		return wire.Request{}, errors.New("the request lacks the file descriptor of its namespace")
	}
	c.mu.Lock()
	c.read = true
	c.mu.Unlock()
	frame := c.frame
	c.frame = nil
	return wire.ParseRequest(frame)
}

// first reads the first bytes, with the file descriptor that was passed with them.
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

// adopt takes the file descriptor from the control message. The buffer fits one; the kernel closes further ones.
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

// more reads until the frame has size bytes. The buffer grows as data arrives, so that a header alone allocates no
// memory.
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

// abandoned reports whether the caller has disconnected. An agent that was stopped for a while finds calls that have
// already failed for the runtime.
func (c *call) abandoned() bool {
	var b [1]byte
	n, _, err := unix.Recvfrom(c.fd, b[:], unix.MSG_PEEK|unix.MSG_DONTWAIT)
	return err == nil && n == 0 || errors.Is(err, unix.ECONNRESET)
}

// answer sends the response and closes the connection.
func (c *call) answer(exit int, out []byte) error {
	return c.send(wire.AppendAnswer(make([]byte, 0, wire.AnswerHeader+len(out)), exit, out))
}

// refuseVersion answers a request of an unknown version, whose caller retries or queues it. A CNI error would end it
// for the runtime.
func (c *call) refuseVersion() error { return c.send(wire.AppendOtherVersion(nil)) }

// send sends the response and closes the connection.
func (c *call) send(frame []byte) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	var err error
	if len(frame) > socketBuffer {
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
	return errors.Join(err, c.shutLocked())
}

// close ends a call without a response.
func (c *call) close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	_ = c.shutLocked()
	if c.netns != 0 {
		_ = unix.Close(c.netns)
	}
	c.cancel(nil)
}

// shutLocked closes the connection.
func (c *call) shutLocked() error {
	if c.fd < 0 {
		return nil
	}
	err := unix.Close(c.fd)
	c.fd = -1
	return err
}
