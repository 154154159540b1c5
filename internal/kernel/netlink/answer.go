// SPDX-License-Identifier: Apache-2.0

package netlink

import (
	"encoding/binary"

	"golang.org/x/sys/unix"
)

// Answer is one message from the kernel. Its body is valid until the next message is read.
type Answer struct {
	Kind, Flags uint16
	Seq, Port   uint32
	Body        []byte
}

// Messages calls f for each message of a datagram and reports whether all of it was understood. A loop over an iterator
// would cost an allocation at the place where the socket uses this.
func Messages(b []byte, f func(Answer)) (whole bool) {
	for len(b) >= unix.NLMSG_HDRLEN {
		size := int(binary.NativeEndian.Uint32(b))
		if size < unix.NLMSG_HDRLEN || size > len(b) {
			return false
		}
		f(Answer{
			Kind:  binary.NativeEndian.Uint16(b[4:]),
			Flags: binary.NativeEndian.Uint16(b[6:]),
			Seq:   binary.NativeEndian.Uint32(b[8:]),
			Port:  binary.NativeEndian.Uint32(b[12:]),
			Body:  b[unix.NLMSG_HDRLEN:size],
		})
		b = b[min(Align(size), len(b)):]
	}
	return len(b) == 0
}

// Done reports whether the answer is an acknowledgment, a refusal or the end of a dump, rather than content.
func (a Answer) Done() bool { return a.Kind == unix.NLMSG_ERROR || a.Kind == unix.NLMSG_DONE }

// Errno returns the error number of an answer that is Done, 0 for an acknowledgment.
func (a Answer) Errno() unix.Errno {
	if len(a.Body) < 4 {
		return 0
	}
	return unix.Errno(-int32(binary.NativeEndian.Uint32(a.Body)))
}

// Hint returns the kernel's own message about a refusal (extended acknowledgment), if any.
func (a Answer) Hint() string {
	if a.Flags&unix.NLM_F_ACK_TLVS == 0 || len(a.Body) < 4 {
		return ""
	}
	rest := a.Body[4:]
	if a.Kind == unix.NLMSG_ERROR {
		quoted := unix.NLMSG_HDRLEN // of the request, or the whole request
		if a.Flags&unix.NLM_F_CAPPED == 0 && len(rest) >= 4 {
			quoted = Align(int(binary.NativeEndian.Uint32(rest)))
		}
		rest = rest[max(0, min(quoted, len(rest))):]
	}
	return String(Find(rest, unix.NLMSGERR_ATTR_MSG))
}

// Netfilter splits the body of an nfnetlink message into its family and the attributes after the fixed header.
func (a Answer) Netfilter() (family byte, attrs []byte, ok bool) {
	if len(a.Body) < 4 {
		return 0, nil, false
	}
	return a.Body[0], a.Body[4:], true
}
