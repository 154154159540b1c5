// SPDX-License-Identifier: Apache-2.0

package rtnl

import (
	"encoding/binary"
	"errors"
	"fmt"
	"strings"

	"golang.org/x/sys/unix"
)

// answer is one message from the kernel.
type answer struct {
	kind  uint16
	flags uint16
	seq   uint32
	body  []byte
}

// exchange writes s.out in one call and hands the answers to f until it says that the last one has come.
func (s *Socket) exchange(f func(answer) bool) error {
	if s.fd < 0 {
		return errors.New("rtnetlink socket is closed")
	}
	s.drain()
	if err := s.send(); err != nil {
		return err
	}
	s.unread = true
	for {
		parts, err := s.in.read(s.fd)
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case errors.Is(err, unix.EAGAIN):
			s.unread = false
			return errNoAnswer
		case err != nil:
			return fmt.Errorf("rtnetlink receive: %w", err)
		}
		done, n := false, int64(0)
		for _, part := range parts {
			split(part, func(a answer) { done, n = f(a) || done, n+1 })
		}
		s.told.Add(n)
		if done {
			s.unread = false
			return nil
		}
	}
}

func (s *Socket) send() error {
	for {
		switch _, err := unix.Write(s.fd, s.out); {
		case errors.Is(err, unix.EINTR):
		case err != nil:
			return fmt.Errorf("rtnetlink send %d bytes: %w", len(s.out), err)
		default:
			return nil
		}
	}
}

// drain throws away what an exchange that failed has left unread.
func (s *Socket) drain() {
	for s.unread {
		_, err := s.in.read(s.fd)
		s.unread = err == nil || errors.Is(err, unix.EINTR) || errors.Is(err, unix.ENOBUFS)
	}
}

// split takes one read apart.
func split(b []byte, f func(answer)) {
	for len(b) >= unix.NLMSG_HDRLEN {
		size := int(binary.NativeEndian.Uint32(b))
		if size < unix.NLMSG_HDRLEN || size > len(b) {
			return
		}
		f(answer{
			kind:  binary.NativeEndian.Uint16(b[4:]),
			flags: binary.NativeEndian.Uint16(b[6:]),
			seq:   binary.NativeEndian.Uint32(b[8:]),
			body:  b[unix.NLMSG_HDRLEN:size],
		})
		b = b[min(align(size), len(b)):]
	}
}

// Each splits notifications, as they are read from a socket that has joined groups.
func Each(b []byte, f func(kind uint16, body []byte)) {
	split(b, func(a answer) { f(a.kind, a.body) })
}

// refusal reads the errno, 0 for an acknowledgement, and the kernel's words of an NLMSG_ERROR or NLMSG_DONE.
func (a answer) refusal() (unix.Errno, string) {
	if len(a.body) < 4 {
		return 0, ""
	}
	errno := unix.Errno(-int32(binary.NativeEndian.Uint32(a.body)))
	if errno == 0 || a.flags&unix.NLM_F_ACK_TLVS == 0 {
		return errno, ""
	}
	rest := a.body[4:]
	if a.kind == unix.NLMSG_ERROR {
		quoted := unix.NLMSG_HDRLEN // of the request, or all of it
		if a.flags&unix.NLM_F_CAPPED == 0 && len(rest) >= 4 {
			quoted = align(int(binary.NativeEndian.Uint32(rest)))
		}
		rest = rest[max(0, min(quoted, len(rest))):]
	}
	hint := ""
	Attrs(rest, func(kind uint16, data []byte) {
		if kind == unix.NLMSGERR_ATTR_MSG {
			hint = strings.TrimRight(string(data), "\x00")
		}
	})
	return errno, hint
}
