// SPDX-License-Identifier: Apache-2.0

package effect

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/weft-net/weft/internal/netns"
	"github.com/weft-net/weft/internal/state"
)

// The words of linux/netfilter/nfnetlink_conntrack.h that x/sys does not name.
const (
	ctSubsystem, ctGet, ctDelete = unix.NFNL_SUBSYS_CTNETLINK << 8, 1, 2

	ctTupleOrig, ctTupleReply, ctID, ctZone, ctFilter = 1, 2, 12, 18, 25
	ctTupleIP, ctTupleProto                           = 1, 2
	ctIP4Src, ctIP4Dst, ctIP6Src, ctIP6Dst            = 1, 2, 3, 4
	ctProtoNum, ctProtoDstPort                        = 1, 3
	ctFilterOrig, ctFilterReply                       = 1, 2

	// Which parts of a tuple a filter looks at (net/netfilter/nf_internals.h).
	partSrc, partDst, partProto, partDstPort = 1 << 0, 1 << 1, 1 << 3, 1 << 5
)

// filters is how many flows are flushed one by one: each makes the kernel walk through its whole table.
const filters = 4

// Tracker speaks with the connection tracking of one namespace. Its socket is kept: whoever closes one of this kind waits
// until the kernel has done with all that was deleted of nft before, up to 20 ms. The zero Tracker is ready for use, also by
// several at a time.
type Tracker struct {
	mu           sync.Mutex
	open, closed bool
	t            tracker
}

// Close closes the socket, if it was ever needed. What is asked for later gets os.ErrClosed.
func (k *Tracker) Close() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.closed = true
	if !k.open {
		return nil
	}
	k.open = false
	return unix.Close(k.t.fd)
}

// flush forgets the tracked connections that match any of the flows. A kernel since 6.9 does it by itself in one
// message for each flow; an older one lists what it tracks, and is told what of it to forget.
func (k *Tracker) flush(ns *netns.NS, flows []state.Flow) error {
	if len(flows) == 0 {
		return nil
	}
	return k.use(ns, func(t tracker) error { return t.forget(flows) })
}

// use does something with the socket.
func (k *Tracker) use(ns *netns.NS, f func(tracker) error) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.closed {
		return fmt.Errorf("conntrack: %w", os.ErrClosed)
	}
	if !k.open {
		err := ns.Do(func() (err error) {
			k.t.fd, err = unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_NETFILTER)
			return err
		})
		if err != nil {
			return fmt.Errorf("conntrack: socket: %w", err)
		}
		// Refusals are short then. A kernel without the option (older than 4.3) repeats what it refuses.
		_ = unix.SetsockoptInt(k.t.fd, unix.SOL_NETLINK, unix.NETLINK_CAP_ACK, 1)
		k.open = true
	}
	err := f(k.t)
	if err != nil { // there may be answers left that are nobody's
		k.open = false
		_ = unix.Close(k.t.fd)
	}
	return err
}

func (t tracker) forget(flows []state.Flow) error {
	listed, filtered := slices.Clone(flows), []state.Flow(nil)
	if len(flows) <= filters {
		listed = slices.DeleteFunc(listed, func(f state.Flow) bool { return !inverted(f) })
		filtered = slices.DeleteFunc(slices.Clone(flows), inverted)
	}
	if len(filtered) > 0 {
		refused, err := t.flush(filtered)
		if err != nil {
			return err
		}
		if refused != 0 {
			listed = flows
		}
	}
	if len(listed) == 0 {
		return nil
	}
	return t.pick(listed)
}

// inverted tells whether the kernel would forget the wrong ones: its filters take all IPv6 addresses but the given one
// (ctnetlink_filter_match_tuple as of Linux 6.18).
func inverted(f state.Flow) bool { return f.IPv6 && (f.Dst.IsValid() || f.To.IsValid()) }

// tracker is an open socket.
type tracker struct{ fd int }

// flush has the kernel forget by filters; refused is what it says when it knows none.
func (t tracker) flush(flows []state.Flow) (refused unix.Errno, err error) {
	var b request
	for i, f := range flows {
		b.begin(ctDelete, unix.NLM_F_ACK, familyOf(f), uint32(i+1))
		b.filter(f)
	}
	b.close()
	err = t.ask(b.buf, uint32(len(flows)), func(_ uint16, _ []byte, errno unix.Errno) {
		if errno != 0 {
			refused = errno
		}
	})
	return refused, err
}

// pick lists what is tracked and forgets what matches. A kernel that cannot list has nothing that could be forgotten.
func (t tracker) pick(flows []state.Flow) error {
	var families []byte
	for _, family := range []byte{unix.AF_INET, unix.AF_INET6} {
		if slices.ContainsFunc(flows, func(f state.Flow) bool { return familyOf(f) == family }) {
			families = append(families, family)
		}
	}
	return t.pickIf(families, func(c connection) bool { return c.matches(flows) })
}

// pickIf is pick for the connections that are chosen.
func (t tracker) pickIf(families []byte, choose func(connection) bool) error {
	var deletions []request
	n := 0
	for _, family := range families {
		var b request
		b.begin(ctGet, unix.NLM_F_DUMP, family, 1)
		b.close()
		var refused unix.Errno
		err := t.ask(b.buf, 1, func(_ uint16, body []byte, errno unix.Errno) {
			if errno != 0 {
				refused = errno
				return
			}
			if c := parseConnection(body); c.orig != nil && choose(c) {
				if n%mostMessages == 0 {
					deletions = append(deletions, request{})
				}
				last := &deletions[len(deletions)-1]
				last.begin(ctDelete, unix.NLM_F_ACK, family, uint32(n%mostMessages)+1)
				last.again(c)
				n++
			}
		})
		switch {
		case err != nil:
			return err
		case refused == unix.EINVAL || refused == unix.EOPNOTSUPP:
			return nil
		case refused != 0:
			return fmt.Errorf("conntrack: list: %w", refused)
		}
	}
	for i, b := range deletions {
		b.close()
		var errs error
		err := t.each(b.buf, uint32(min(mostMessages, n-i*mostMessages)), func(_ uint32, errno unix.Errno) {
			if errno != 0 && errno != unix.ENOENT { // it has ended meanwhile
				errs = errors.Join(errs, fmt.Errorf("conntrack: delete: %w", errno))
			}
		})
		if err = errors.Join(err, errs); err != nil {
			return err
		}
	}
	return nil
}

// ask sends messages and hands on each answer until the one to the message numbered last is complete.
func (t tracker) ask(msgs []byte, last uint32, f func(kind uint16, body []byte, errno unix.Errno)) error {
	if err := unix.Sendto(t.fd, msgs, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return fmt.Errorf("conntrack: send: %w", err)
	}
	buf := make([]byte, 64<<10)
	for {
		n, _, err := unix.Recvfrom(t.fd, buf, 0)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return fmt.Errorf("conntrack: receive: %w", err)
		}
		if answers(buf[:n], last, f) {
			return nil
		}
	}
}

// answers hands on what is in a datagram, and tells whether the answer to the message numbered last is complete.
func answers(b []byte, last uint32, f func(kind uint16, body []byte, errno unix.Errno)) bool {
	for len(b) >= unix.NLMSG_HDRLEN {
		size := int(binary.NativeEndian.Uint32(b))
		if size < unix.NLMSG_HDRLEN || size > len(b) {
			return false
		}
		kind, seq, body := binary.NativeEndian.Uint16(b[4:]), binary.NativeEndian.Uint32(b[8:]), b[unix.NLMSG_HDRLEN:size]
		b = b[min((size+3)&^3, len(b)):]
		if kind != unix.NLMSG_ERROR && kind != unix.NLMSG_DONE {
			if len(body) > 4 {
				f(kind, body[4:], 0) // behind the nfgenmsg
			}
			continue
		}
		if len(body) >= 4 {
			if errno := unix.Errno(-int32(binary.NativeEndian.Uint32(body))); errno != 0 {
				f(kind, nil, errno)
			}
		}
		if seq == last {
			return true
		}
	}
	return false
}

func familyOf(f state.Flow) byte {
	if f.IPv6 {
		return unix.AF_INET6
	}
	return unix.AF_INET
}

func protoNumber(name string) byte {
	switch name {
	case "tcp":
		return unix.IPPROTO_TCP
	case "udp":
		return unix.IPPROTO_UDP
	case "sctp":
		return unix.IPPROTO_SCTP
	}
	return 0
}

// connection is what is looked at of a tracked connection.
type connection struct {
	orig, id, zone []byte // as the kernel said them
	reply          []byte
	proto          byte
	port           uint16
	dst, to        netip.Addr
	v6             bool
}

func (c connection) matches(flows []state.Flow) bool {
	for _, f := range flows {
		if f.IPv6 == c.v6 && (f.Proto == "" || protoNumber(f.Proto) == c.proto) && (f.Port == 0 || f.Port == c.port) &&
			(!f.Dst.IsValid() || f.Dst == c.dst) && (!f.To.IsValid() || f.To == c.to) {
			return true
		}
	}
	return false
}
