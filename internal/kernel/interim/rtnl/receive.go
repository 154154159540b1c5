// SPDX-License-Identifier: Apache-2.0

package rtnl

import (
	"encoding/binary"
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// header is a netlink message's header.
type header struct {
	size  uint32
	kind  uint16
	flags uint16
	seq   uint32
}

// roundTrip sends s.out and hands every answer to its requests (from sequence number base to last) to f until the last
// one is acknowledged or done.
func (s *Socket) roundTrip(last uint32, f func(header, []byte) error, base uint32) error {
	if s.fd < 0 {
		return errors.New("rtnetlink socket is closed")
	}
	if err := unix.Sendto(s.fd, s.out, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return fmt.Errorf("rtnetlink send: %w", err)
	}
	var first error
	for done := false; !done; {
		n, err := s.receive()
		if err != nil {
			return fmt.Errorf("rtnetlink answer: %w", err)
		}
		err = split(s.buf[:n], func(h header, body []byte) error {
			if h.seq < base || h.seq > last {
				return nil // the late answer to a request that was given up
			}
			if h.seq == last && (h.kind == unix.NLMSG_DONE || h.kind == unix.NLMSG_ERROR) {
				done = true
			}
			return f(h, body)
		})
		if err != nil && first == nil {
			first = err
		}
	}
	return first
}

func (s *Socket) receive() (int, error) {
	for {
		n, _, err := unix.Recvfrom(s.fd, s.buf, unix.MSG_TRUNC)
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case err != nil:
			return 0, err
		case n > len(s.buf):
			return 0, fmt.Errorf("%d bytes do not fit %d", n, len(s.buf))
		}
		return n, nil
	}
}

func split(b []byte, f func(header, []byte) error) error {
	var first error
	for len(b) >= unix.SizeofNlMsghdr {
		h := header{
			size: binary.NativeEndian.Uint32(b), kind: binary.NativeEndian.Uint16(b[4:]),
			flags: binary.NativeEndian.Uint16(b[6:]), seq: binary.NativeEndian.Uint32(b[8:]),
		}
		if h.size < unix.SizeofNlMsghdr || int(h.size) > len(b) {
			return errors.New("netlink message is truncated")
		}
		if err := f(h, b[unix.SizeofNlMsghdr:h.size]); err != nil && first == nil {
			first = err
		}
		b = b[min((int(h.size)+3)&^3, len(b)):]
	}
	return first
}

// refusal reads an NLMSG_ERROR; nil is an acknowledgement.
func refusal(h header, body []byte) *Refusal {
	if h.kind != unix.NLMSG_ERROR || len(body) < 4 {
		return nil
	}
	code := int32(binary.NativeEndian.Uint32(body))
	if code == 0 {
		return nil
	}
	r := &Refusal{Errno: unix.Errno(-code)}
	const nlmErrorTLVs = 0x200 // NLM_F_ACK_TLVS
	if h.flags&nlmErrorTLVs != 0 && len(body) >= 4+unix.SizeofNlMsghdr {
		rest := body[4+unix.SizeofNlMsghdr:]
		if h.flags&0x100 == 0 { // not NLM_F_CAPPED: the request's own body stands before
			size := int(binary.NativeEndian.Uint32(body[4:]))
			rest = body[min(4+((size+3)&^3), len(body)):]
		}
		Attrs(rest, func(kind uint16, data []byte) {
			if kind == 1 && len(data) > 0 { // NLMSGERR_ATTR_MSG
				r.Hint = string(data[:len(data)-1])
			}
		})
	}
	return r
}
