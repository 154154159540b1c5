// SPDX-License-Identifier: Apache-2.0

package shim

import (
	"syscall"

	"github.com/weft-net/weft/internal/wire"
)

// What the agent did instead of answering.
const (
	errSilent wire.Error = "no answer in time"
	errBroken wire.Error = "the connection broke before the answer"
)

// exchange asks the agent. An error means that there was no answer, whatever the agent did with the request.
func (c *call) exchange() (exit int, out []byte, err error) {
	fd, err := syscall.Socket(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return 0, nil, err
	}
	defer func() { _ = syscall.Close(fd) }()
	if err := c.dial(fd); err != nil {
		return 0, nil, err
	}
	if err := c.send(fd); err != nil {
		return 0, nil, err
	}
	return receive(fd)
}

// dial connects. The send timeout set here bounds connecting (to an agent whose backlog is full) and sending.
func (c *call) dial(fd int) error {
	if err := syscall.SetsockoptTimeval(fd, syscall.SOL_SOCKET, syscall.SO_SNDTIMEO, millis(wire.ConnectMillis)); err != nil {
		return err
	}
	for {
		err := syscall.Connect(fd, &syscall.SockaddrUnix{Name: c.socket})
		if err == syscall.EINTR {
			continue
		}
		return timely(err)
	}
}

// send hands the request over, with the namespace's descriptor beside its first byte.
func (c *call) send(fd int) error {
	h := wire.Header{Env: len(c.frame) - len(c.conf) - wire.RequestHeader, Conf: len(c.conf)}
	var rights []byte
	if path := getenv(c.env.Environ, "CNI_NETNS"); path != "" {
		// O_NONBLOCK: should the path be a pipe without a writer, open would wait for ever.
		ns, err := syscall.Open(path, syscall.O_RDONLY|syscall.O_CLOEXEC|syscall.O_NONBLOCK, 0)
		if errno, ok := err.(syscall.Errno); ok {
			h.Errno = uint16(errno)
		} else {
			h.Netns, rights = true, syscall.UnixRights(ns)
		}
	}
	h.Put(c.frame)
	rest := c.frame
	for len(rest) > 0 {
		n, err := syscall.SendmsgN(fd, rest, rights, nil, syscall.MSG_NOSIGNAL)
		if err == syscall.EINTR {
			continue
		}
		if err != nil {
			return timely(err)
		}
		rest, rights = rest[n:], nil
	}
	return nil
}

// receive waits for the answer.
func receive(fd int) (exit int, out []byte, err error) {
	if err := patience(fd, wire.AcceptMillis); err != nil {
		return 0, nil, err
	}
	b := make([]byte, 0, 8<<10)
	for {
		if b, err = more(fd, b, wire.AnswerHeader); err != nil {
			return 0, nil, err
		}
		a, err := wire.ParseAnswer(b)
		if err != nil {
			return 0, nil, err
		}
		if a.Busy {
			b = append(b[:0], b[wire.AnswerHeader:]...)
			if err := patience(fd, wire.CallMillis); err != nil {
				return 0, nil, err
			}
			continue
		}
		if b, err = more(fd, b, wire.AnswerHeader+a.Len); err != nil {
			return 0, nil, err
		}
		return a.Exit, b[wire.AnswerHeader : wire.AnswerHeader+a.Len], nil
	}
}

// more reads until b has at least size bytes.
func more(fd int, b []byte, size int) ([]byte, error) {
	for len(b) < size {
		if len(b) == cap(b) {
			b = append(b, 0)[:len(b)]
		}
		n, err := syscall.Read(fd, b[len(b):cap(b)])
		if err == syscall.EINTR {
			continue
		}
		if err != nil {
			return b, timely(err)
		}
		if n == 0 {
			return b, errBroken
		}
		b = b[:len(b)+n]
	}
	return b, nil
}

func patience(fd, ms int) error {
	return syscall.SetsockoptTimeval(fd, syscall.SOL_SOCKET, syscall.SO_RCVTIMEO, millis(ms))
}

func millis(ms int) *syscall.Timeval {
	tv := syscall.NsecToTimeval(int64(ms) * 1_000_000)
	return &tv
}

// timely gives a socket's timeout its name.
func timely(err error) error {
	if err == syscall.EAGAIN || err == syscall.EWOULDBLOCK {
		return errSilent
	}
	return err
}
