// SPDX-License-Identifier: Apache-2.0

package nft

import (
	"encoding/binary"
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// sendBuffer bounds the size of one transaction: the kernel takes it in one message.
const sendBuffer = 16 << 20

// errNoAnswer is returned when the kernel dropped answers because there were too many.
var errNoAnswer = errors.New("the kernel gave no answer")

// sock is a netfilter netlink socket. nf_tables works while it is sent to, so that all answers are there when the write
// returns: no call ever waits for one.
type sock struct {
	fd  int
	seq uint32
	buf []byte
	// unread is set while answers may be waiting that nobody reads any more.
	unread bool
}

// answer is one message from the kernel.
type answer struct {
	seq   uint32
	typ   uint16 // of nf_tables, when not done
	done  bool   // the end of an answer: NLMSG_ERROR or NLMSG_DONE
	flags uint16
	errno unix.Errno // when done; 0 is an acknowledgement
	body  []byte     // behind the nfgenmsg
	fam   byte
}

func openSock() (*sock, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, unix.NETLINK_NETFILTER)
	if err != nil {
		return nil, fmt.Errorf("netfilter socket: %w", err)
	}
	for _, opt := range []int{unix.SO_SNDBUF, unix.SO_RCVBUF} {
		force := unix.SO_SNDBUFFORCE
		if opt == unix.SO_RCVBUF {
			force = unix.SO_RCVBUFFORCE
		}
		if unix.SetsockoptInt(fd, unix.SOL_SOCKET, force, sendBuffer) == nil {
			continue
		}
		// Without CAP_NET_ADMIN outside (a user namespace) the machine's maximum is what one gets.
		if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, opt, sendBuffer); err != nil {
			_ = unix.Close(fd)
			return nil, fmt.Errorf("netfilter socket: buffer: %w", err)
		}
	}
	// Answers to failed messages need not quote them.
	if err := unix.SetsockoptInt(fd, unix.SOL_NETLINK, unix.NETLINK_CAP_ACK, 1); err != nil {
		_ = unix.Close(fd)
		return nil, fmt.Errorf("netfilter socket: short acknowledgements: %w", err)
	}
	return &sock{fd: fd, seq: 1, buf: make([]byte, 64<<10)}, nil
}

func (s *sock) close() error { return unix.Close(s.fd) }

// send writes the messages in one call and hands each answer to f until the one to the message numbered last has come,
// or none is left.
func (s *sock) send(msgs []byte, last uint32, f func(answer)) error {
	if err := s.drain(); err != nil {
		return err
	}
	if _, err := unix.Write(s.fd, msgs); err != nil {
		return fmt.Errorf("send %d bytes: %w", len(msgs), err)
	}
	s.unread = true
	for {
		n, err := unix.Read(s.fd, s.buf)
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case errors.Is(err, unix.EAGAIN):
			s.unread = false
			return errNoAnswer
		case err != nil:
			return fmt.Errorf("receive: %w", err)
		}
		if done := parseAnswers(s.buf[:n], last, f); done {
			s.unread = false
			return nil
		}
	}
}

// drain throws away answers that an earlier call left behind after an error, so that numbers never meet the wrong
// question.
func (s *sock) drain() error {
	for s.unread {
		_, err := unix.Read(s.fd, s.buf)
		switch {
		case errors.Is(err, unix.EAGAIN):
			s.unread = false
		case err != nil && !errors.Is(err, unix.EINTR) && !errors.Is(err, unix.ENOBUFS):
			return fmt.Errorf("receive: %w", err)
		}
	}
	return nil
}

// parseAnswers splits one datagram and tells whether the last answer was in it.
func parseAnswers(b []byte, last uint32, f func(answer)) bool {
	done := false
	for len(b) >= unix.NLMSG_HDRLEN {
		size := int(binary.NativeEndian.Uint32(b))
		if size < unix.NLMSG_HDRLEN || size > len(b) {
			break
		}
		a := answer{
			typ:   binary.NativeEndian.Uint16(b[4:]),
			flags: binary.NativeEndian.Uint16(b[6:]),
			seq:   binary.NativeEndian.Uint32(b[8:]),
		}
		body := b[unix.NLMSG_HDRLEN:size]
		b = b[min(align4(size), len(b)):]
		switch a.typ {
		case unix.NLMSG_ERROR, unix.NLMSG_DONE:
			if len(body) >= 4 {
				a.errno = unix.Errno(-int32(binary.NativeEndian.Uint32(body)))
			}
			a.done = true
			done = done || a.seq == last
		default:
			a.typ &= 0xff
			if len(body) < 4 {
				continue
			}
			a.fam, a.body = body[0], body[4:]
		}
		f(a)
	}
	return done
}
