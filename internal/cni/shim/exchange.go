// SPDX-License-Identifier: Apache-2.0

package shim

import (
	"syscall"

	"github.com/weft-net/weft/internal/cni/wire"
)

// exchange sends the call to the agent and returns its answer. After an error the agent may still have handled the
// request.
func (c *call) exchange() (exit int, out []byte, err error) {
	fd, err := dial(c.socket)
	if err != nil {
		return 0, nil, err
	}
	defer func() { _ = syscall.Close(fd) }()
	if err := c.send(fd); err != nil {
		return 0, nil, err
	}
	exit, out, err = receive(fd, wire.AnswerMillis)
	if err == wire.ErrSilent && ping(c.socket) {
		exit, out, err = receive(fd, wire.CallMillis)
	}
	return exit, out, err
}

// ping reports whether the agent is running.
func ping(socket string) bool {
	fd, err := dial(wire.PingSocket(socket))
	if err != nil {
		return false
	}
	defer func() { _ = syscall.Close(fd) }()
	exit, _, err := receive(fd, wire.PingMillis)
	return err == nil && exit == 0
}

// dial connects. Its send timeout bounds connecting (to an agent whose backlog is full) and sending.
func dial(socket string) (int, error) {
	fd, err := syscall.Socket(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return -1, err
	}
	err = syscall.SetsockoptTimeval(fd, syscall.SOL_SOCKET, syscall.SO_SNDTIMEO, millis(wire.ConnectMillis))
	for err == nil {
		if err = syscall.Connect(fd, &syscall.SockaddrUnix{Name: socket}); err == nil {
			return fd, nil
		}
		if err == syscall.EINTR {
			err = nil
		}
	}
	_ = syscall.Close(fd)
	return -1, timeoutError(err)
}

// send sends the request, with the namespace's file descriptor attached to its first byte.
func (c *call) send(fd int) error {
	h := wire.Header{Env: len(c.frame) - len(c.conf) - wire.RequestHeader, Conf: len(c.conf)}
	var rights []byte
	if path := getenv(c.env.Environ, "CNI_NETNS"); path != "" {
		// O_NONBLOCK: if the path is a pipe without a writer, open would block.
		ns, err := syscall.Open(path, syscall.O_RDONLY|syscall.O_CLOEXEC|syscall.O_NONBLOCK, 0)
		if errno, ok := err.(syscall.Errno); ok {
			h.Errno = uint16(errno)
		} else {
			h.Netns, rights = true, syscall.UnixRights(ns)
		}
	}
	h.Put(c.frame)
	return sendFrame(fd, c.frame, rights)
}

// sendFrame writes a frame, with rights attached to its first byte.
func sendFrame(fd int, rest, rights []byte) error {
	for len(rest) > 0 {
		n, err := syscall.SendmsgN(fd, rest, rights, nil, syscall.MSG_NOSIGNAL)
		if err == syscall.EINTR {
			continue
		}
		if err != nil {
			return timeoutError(err)
		}
		rest, rights = rest[n:], nil
	}
	return nil
}

// receive waits for the answer; wire.ErrSilent if nothing arrives in time.
func receive(fd, ms int) (exit int, out []byte, err error) {
	if err := syscall.SetsockoptTimeval(fd, syscall.SOL_SOCKET, syscall.SO_RCVTIMEO, millis(ms)); err != nil {
		return 0, nil, err
	}
	b, err := readAtLeast(fd, make([]byte, 0, 8<<10), wire.AnswerHeader)
	if err != nil {
		return 0, nil, err
	}
	a, err := wire.ParseAnswer(b)
	if err != nil {
		return 0, nil, err
	}
	if b, err = readAtLeast(fd, b, wire.AnswerHeader+a.Len); err != nil {
		return 0, nil, err
	}
	return a.Exit, b[wire.AnswerHeader : wire.AnswerHeader+a.Len], nil
}

// readAtLeast reads until b has at least size bytes.
func readAtLeast(fd int, b []byte, size int) ([]byte, error) {
	for len(b) < size {
		if len(b) == cap(b) {
			b = append(b, 0)[:len(b)]
		}
		n, err := syscall.Read(fd, b[len(b):cap(b)])
		if err == syscall.EINTR {
			continue
		}
		if err != nil && len(b) > 0 {
			return b, wire.ErrBroken
		}
		if err != nil {
			return b, timeoutError(err)
		}
		if n == 0 {
			return b, wire.ErrBroken
		}
		b = b[:len(b)+n]
	}
	return b, nil
}

func millis(ms int) *syscall.Timeval {
	tv := syscall.NsecToTimeval(int64(ms) * 1_000_000)
	return &tv
}

// timeoutError converts a socket's timeout to wire.ErrSilent.
func timeoutError(err error) error {
	if err == syscall.EAGAIN || err == syscall.EWOULDBLOCK {
		return wire.ErrSilent
	}
	return err
}
