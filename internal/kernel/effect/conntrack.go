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

// Constants of linux/netfilter/nfnetlink_conntrack.h that x/sys does not have.
const (
	ctSubsystem, ctGet, ctDelete = unix.NFNL_SUBSYS_CTNETLINK << 8, 1, 2

	ctTupleOrig, ctTupleReply, ctID, ctZone, ctFilter = 1, 2, 12, 18, 25
	ctTupleIP, ctTupleProto                           = 1, 2
	ctIP4Src, ctIP4Dst, ctIP6Src, ctIP6Dst            = 1, 2, 3, 4
	ctProtoNum, ctProtoDstPort                        = 1, 3
	ctFilterOrig, ctFilterReply                       = 1, 2

	// The parts of a tuple that a filter compares (net/netfilter/nf_internals.h).
	partSrc, partDst, partProto, partDstPort = 1 << 0, 1 << 1, 1 << 3, 1 << 5
)

// datagramSize is the maximum size of a part of a dump.
const datagramSize = 64 << 10

// maxFilteredFlushes is how many flows are flushed one by one: for each the kernel walks its whole table.
const maxFilteredFlushes = 4

// Conntrack accesses the connection tracking of one namespace. It keeps its socket: closing a netfilter socket waits
// until the kernel has freed all nft objects that were deleted before, up to 20 ms. The zero Conntrack is ready for use,
// also concurrently.
type Conntrack struct {
	mu     sync.Mutex
	closed bool
	sock   *netlink.Socket // nil until it is needed
}

// Close closes the socket, if it was opened. Later calls return os.ErrClosed.
func (k *Conntrack) Close() error {
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

// flushFlows deletes the conntrack entries that match any of the flows. A kernel since 6.9 filters them itself, with one
// message for each flow; for an older one the entries are listed and deleted one by one.
func (k *Conntrack) flushFlows(ns *netns.NS, flows []state.Flow) error {
	if len(flows) == 0 {
		return nil
	}
	return k.use(ns, func(t conn) error { return t.forget(flows) })
}

// FlushTranslated is flushFlows for the flows of many containers. The kernel's table is listed at most once, for those
// that no filter of the kernel can select.
func (k *Conntrack) FlushTranslated(ns *netns.NS, flows []state.Flow) error {
	var listed, filtered []state.Flow
	for _, f := range flows {
		if inverted(f) {
			listed = append(listed, f)
		} else {
			filtered = append(filtered, f)
		}
	}
	errs := []error{k.flushFlows(ns, listed)}
	for some := range slices.Chunk(filtered, maxFilteredFlushes) {
		errs = append(errs, k.flushFlows(ns, some))
	}
	return errors.Join(errs...)
}

// use calls f with the socket, opening it if necessary.
func (k *Conntrack) use(ns *netns.NS, f func(conn) error) error {
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
	return f(conn{k.sock})
}

func (t conn) forget(flows []state.Flow) error {
	listed, filtered := slices.Clone(flows), []state.Flow(nil)
	if len(flows) <= maxFilteredFlushes {
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

// inverted reports whether the kernel would delete the wrong entries: its filters match all IPv6 addresses except the
// given one (ctnetlink_filter_match_tuple as of Linux 6.18).
func inverted(f state.Flow) bool { return f.IPv6 && (f.Dst.IsValid() || f.ReplySrc.IsValid()) }

// conn is an open socket.
type conn struct{ sock *netlink.Socket }

// flush deletes entries by filters; refused is the kernel's error if it does not support them.
func (t conn) flush(flows []state.Flow) (refused unix.Errno, err error) {
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

// pick lists the entries and deletes those that match. A kernel that cannot list has no entries.
func (t conn) pick(flows []state.Flow) error {
	var families []byte
	for _, family := range []byte{unix.AF_INET, unix.AF_INET6} {
		if slices.ContainsFunc(flows, func(f state.Flow) bool { return familyOf(f) == family }) {
			families = append(families, family)
		}
	}
	return t.pickIf(families, func(c connection) bool { return c.matches(flows) })
}

// pickIf is pick with a function that selects entries.
func (t conn) pickIf(families []byte, choose func(connection) bool) error {
	var deletions []*request
	n := 0
	for _, family := range families {
		var b request
		b.begin(ctGet, 0, family)
		refused, err := t.table(&b, func(body []byte) {
			if c := parseConnection(body); c.orig != nil && choose(c) {
				if n%maxMessages == 0 {
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
			if errno != 0 && errno != unix.ENOENT { // it has expired meanwhile
				errs = errors.Join(errs, fmt.Errorf("conntrack: delete: %w", errno))
			}
		})
		if err = errors.Join(err, errs); err != nil {
			return err
		}
	}
	return nil
}

// ask sends read requests and calls f for each answer and each error, until the last request is answered.
func (t conn) ask(b *request, f func(body []byte, errno unix.Errno)) error {
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

// each sends requests that have one answer each, and calls f with the answers and their indexes.
func (t conn) each(b *request, f func(i int, errno unix.Errno)) error {
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

// table dumps a table and calls f for its entries; changes during the dump may be missing. refused is the kernel's
// error.
func (t conn) table(b *request, f func(body []byte)) (refused unix.Errno, err error) {
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

// connection has the parts of a conntrack entry that are used.
type connection struct {
	orig, id, zone []byte // as the kernel sent them
	reply          []byte
	proto          byte
	port           uint16
	dst, to        netip.Addr
	v6             bool
}

func (c connection) matches(flows []state.Flow) bool {
	for _, f := range flows {
		if f.IPv6 == c.v6 && (f.Proto == "" || protoNumber(f.Proto) == c.proto) && (f.Port == 0 || f.Port == c.port) &&
			(!f.Dst.IsValid() || f.Dst == c.dst) && (!f.ReplySrc.IsValid() || f.ReplySrc == c.to) {
			return true
		}
	}
	return false
}
