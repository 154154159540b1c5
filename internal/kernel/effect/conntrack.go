// SPDX-License-Identifier: Apache-2.0

package effect

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/weft-net/weft/internal/kernel/netlink"
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

// datagramSize bounds a part of a dump.
const datagramSize = 64 << 10

// filters is how many flows are flushed one by one: each makes the kernel walk through its whole table.
const filters = 4

// Tracker speaks with the connection tracking of one namespace. Its socket is kept: whoever closes one of this kind
// waits until the kernel has done with all that was deleted of nft before, up to 20 ms. The zero Tracker is ready for
// use, also by several at a time.
type Tracker struct {
	mu     sync.Mutex
	closed bool
	sock   *netlink.Socket // nil until it is needed
}

// Close closes the socket, if it was ever needed. What is asked for later gets os.ErrClosed.
func (k *Tracker) Close() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.closed = true
	if k.sock == nil {
		return nil
	}
	err := k.sock.Close()
	k.sock = nil
	return err
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
	if k.sock == nil {
		sock, err := netlink.Open(ns, netlink.Options{
			Protocol: unix.NETLINK_NETFILTER, Datagrams: 1, Size: datagramSize, ShortAcks: true,
		})
		if err != nil {
			return fmt.Errorf("conntrack: %w", err)
		}
		k.sock = sock
	}
	return f(tracker{k.sock})
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
type tracker struct{ sock *netlink.Socket }

// flush has the kernel forget by filters; refused is what it says when it knows none.
func (t tracker) flush(flows []state.Flow) (refused unix.Errno, err error) {
	var b request
	for _, f := range flows {
		b.begin(ctDelete, unix.NLM_F_ACK, familyOf(f))
		b.filter(f)
	}
	err = t.ask(&b, func(_ []byte, errno unix.Errno) {
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
	var deletions []*request
	n := 0
	for _, family := range families {
		var b request
		b.begin(ctGet, 0, family)
		refused, err := t.table(&b, func(body []byte) {
			if c := parseConnection(body); c.orig != nil && choose(c) {
				if n%mostMessages == 0 {
					deletions = append(deletions, &request{})
				}
				last := deletions[len(deletions)-1]
				last.begin(ctDelete, unix.NLM_F_ACK, family)
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
	for _, b := range deletions {
		var errs error
		err := t.each(b, func(_ int, errno unix.Errno) {
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

// ask sends questions and hands on each answer and each refusal, until the last question is answered.
func (t tracker) ask(b *request, f func(body []byte, errno unix.Errno)) error {
	err := t.sock.Exchange(&b.Batch, func(a netlink.Answer) bool {
		if !a.Done() {
			if _, body, ok := a.Netfilter(); ok {
				f(body, 0)
			}
			return false
		}
		if errno := a.Errno(); errno != 0 {
			f(nil, errno)
		}
		return a.Seq == b.Last()
	})
	if err != nil {
		return fmt.Errorf("conntrack: %w", err)
	}
	return nil
}

// each sends messages of which each gets one answer, and hands on these with their places.
func (t tracker) each(b *request, f func(i int, errno unix.Errno)) error {
	done := 0
	err := t.sock.Exchange(&b.Batch, func(a netlink.Answer) bool {
		if i, ok := b.Index(a); ok && a.Kind == unix.NLMSG_ERROR {
			f(i, a.Errno())
			done++
		}
		return done == b.Count()
	})
	if err != nil {
		return fmt.Errorf("conntrack: %w", err)
	}
	return nil
}

// table asks for a table and hands on its entries, of which some come and some go meanwhile. refused is the kernel's
// refusal.
func (t tracker) table(b *request, f func(body []byte)) (refused unix.Errno, err error) {
	_, err = t.sock.Dump(&b.Batch, func(a netlink.Answer) {
		if _, body, ok := a.Netfilter(); ok {
			f(body)
		}
	})
	var r *netlink.Refused
	if errors.As(err, &r) {
		return r.Errno, nil
	}
	if err != nil {
		return 0, fmt.Errorf("conntrack: %w", err)
	}
	return 0, nil
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
