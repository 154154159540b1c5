// SPDX-License-Identifier: Apache-2.0

package effect

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/weft-net/weft/internal/kernel/netlink"
	"github.com/weft-net/weft/internal/netns"
	"github.com/weft-net/weft/internal/state"
)

// Further constants of linux/netfilter/nfnetlink_conntrack.h and nf_conntrack_common.h.
const (
	ctNew = 0

	ctStatus, ctProtoInfo, ctNATSrc, ctTimeout, ctMark, ctNATDst = 3, 4, 6, 7, 8, 13
	ctTCP                                                        = 1
	ctTCPState, ctTCPScale, ctTCPFlags                           = 1, 2, 4 // original direction; +1 is the reply
	natMin4, natMax4, natProto, natMin6, natMax6                 = 1, 2, 3, 4, 5
	natPortMin, natPortMax                                       = 1, 2

	statusSeenReply, statusAssured, statusConfirmed = 1 << 1, 1 << 2, 1 << 3
	// tcpLiberal accepts packets outside the TCP window (IP_CT_TCP_FLAG_BE_LIBERAL), because earlier packets are
	// unknown. tcpAgreed are the flags that the ends have negotiated; the others are internal to the kernel.
	tcpLiberal, tcpAgreed = 0x08, 0x03
)

// List returns the conntrack entries of TCP and UDP in a namespace that choose selects.
func (k *Conntrack) List(ns *netns.NS, choose func(state.Connection) bool) ([]state.ConntrackEntry, error) {
	var out []state.ConntrackEntry
	err := k.use(ns, func(t conn) error {
		for _, family := range []byte{unix.AF_INET, unix.AF_INET6} {
			var b request
			b.begin(ctGet, 0, family)
			refused, err := t.table(&b, func(body []byte) {
				if c, ok := parseTracked(body); ok && choose(c.Connection) {
					out = append(out, c)
				}
			})
			switch {
			case err != nil:
				return err
			case refused == unix.EINVAL || refused == unix.EOPNOTSUPP:
				return nil // a kernel without connection tracking
			case refused != 0:
				return fmt.Errorf("conntrack: list: %w", refused)
			}
		}
		return nil
	})
	return out, err
}

// ListOf returns the conntrack entries of TCP and UDP in a namespace whose originator or responder is one of the
// addresses. As Find it lets the kernel filter if possible.
func (k *Conntrack) ListOf(ns *netns.NS, addrs []netip.Addr) ([]state.ConntrackEntry, error) {
	var filters []side
	for _, a := range addrs {
		filters = append(filters, side{a, true}, side{a, false})
	}
	var out []state.ConntrackEntry
	have := map[state.Connection]bool{} // a connection between two of them is dumped twice
	err := k.use(ns, func(t conn) error {
		return t.find(filters, func(body []byte) {
			c, ok := parseTracked(body)
			if ok && !have[c.Connection] &&
				(slices.Contains(addrs, c.Src.Addr()) || slices.Contains(addrs, c.ReplySrc.Addr())) {
				have[c.Connection] = true
				out = append(out, c)
			}
		})
	})
	return out, err
}

// Insert inserts conntrack entries into a namespace. With longer it extends the timeouts of existing ones; it never
// shortens them.
func (k *Conntrack) Insert(ns *netns.NS, all []state.ConntrackEntry, longer bool) error {
	for some := range slices.Chunk(all, maxMessages) {
		if err := k.use(ns, func(t conn) error { return t.make(some, longer) }); err != nil {
			return err
		}
	}
	return nil
}

// maxMessages is the maximum of messages in one datagram: the kernel allocates about 1 kB for each answer, and the
// socket's default buffer has 208 kB.
const maxMessages = 128

// SetTCPLiberal makes conntrack accept packets outside the TCP window of connections: a part of their packets takes another
// path.
func (k *Conntrack) SetTCPLiberal(ns *netns.NS, all []state.ConntrackEntry) error {
	all = slices.DeleteFunc(slices.Clone(all), func(c state.ConntrackEntry) bool { return c.TCP == nil })
	for some := range slices.Chunk(all, maxMessages) {
		var b request
		for _, c := range some {
			b.begin(ctNew, unix.NLM_F_ACK, familyOfTracked(c))
			b.nest(ctTupleOrig, func() { b.tuple(c.Proto, c.Src, c.Dst) })
			b.nest(ctProtoInfo, func() {
				b.nest(ctTCP, func() {
					for way := range uint16(2) {
						b.Attr(ctTCPFlags+way, []byte{tcpLiberal, tcpLiberal})
					}
				})
			})
		}
		var errs error
		err := k.use(ns, func(t conn) error {
			return t.each(&b, func(_ int, errno unix.Errno) {
				if errno != 0 && errno != unix.ENOENT { // it has expired meanwhile
					errs = errors.Join(errs, fmt.Errorf("conntrack: set liberal TCP tracking: %w", errno))
				}
			})
		})
		if err = errors.Join(err, errs); err != nil {
			return err
		}
	}
	return nil
}

func (t conn) make(all []state.ConntrackEntry, longer bool) error {
	var b request
	for _, c := range all {
		b.begin(ctNew, unix.NLM_F_ACK|unix.NLM_F_CREATE|unix.NLM_F_EXCL, familyOfTracked(c))
		b.track(c)
	}
	answered := 0
	var known []state.ConntrackEntry
	var errs error
	err := t.each(&b, func(i int, errno unix.Errno) {
		answered++
		c := all[i]
		switch errno {
		case 0:
		case unix.EEXIST:
			known = append(known, c)
		default:
			errs = errors.Join(errs, fmt.Errorf("conntrack: insert %s to %s: %w", c.Src, c.Dst, errno))
		}
	})
	if err != nil || len(known) == 0 || !longer {
		return errors.Join(err, errs)
	}
	if known, err = t.outlived(known); err != nil || len(known) == 0 {
		return errors.Join(err, errs)
	}
	b = request{}
	for _, c := range known {
		b.begin(ctNew, unix.NLM_F_ACK, familyOfTracked(c))
		b.nest(ctTupleOrig, func() { b.tuple(c.Proto, c.Src, c.Dst) })
		b.BE32(ctTimeout, c.Timeout)
	}
	err = t.each(&b, func(_ int, errno unix.Errno) {
		if errno != 0 && errno != unix.ENOENT { // it has expired meanwhile, or has the other direction
			errs = errors.Join(errs, fmt.Errorf("conntrack: extend timeout: %w", errno))
		}
	})
	return errors.Join(err, errs)
}

func familyOfTracked(c state.ConntrackEntry) byte {
	if c.Src.Addr().Is6() {
		return unix.AF_INET6
	}
	return unix.AF_INET
}

// track adds a conntrack entry. The kernel derives the reply tuple from the original one and the translation.
func (r *request) track(c state.ConntrackEntry) {
	r.nest(ctTupleOrig, func() { r.tuple(c.Proto, c.Src, c.Dst) })
	r.nest(ctTupleReply, func() { r.tuple(c.Proto, c.Dst, c.Src) })
	if c.ReplySrc != c.Dst {
		r.nest(ctNATDst, func() { r.translation(c.ReplySrc) })
	}
	if c.ReplyDst != c.Src {
		r.nest(ctNATSrc, func() { r.translation(c.ReplyDst) })
	}
	status := uint32(statusConfirmed)
	if c.SeenReply {
		status |= statusSeenReply
	}
	if c.Assured {
		status |= statusAssured
	}
	r.BE32(ctStatus, status)
	r.BE32(ctTimeout, c.Timeout)
	if c.Mark != 0 {
		r.BE32(ctMark, c.Mark)
	}
	if c.TCP == nil {
		return
	}
	r.nest(ctProtoInfo, func() {
		r.nest(ctTCP, func() {
			r.Uint8(ctTCPState, c.TCP.State)
			for way := range uint16(2) {
				r.Uint8(ctTCPScale+way, c.TCP.Scale[way])
				flags := c.TCP.Flags[way] | tcpLiberal
				r.Attr(ctTCPFlags+way, []byte{flags, flags})
			}
		})
	})
}

func (r *request) tuple(proto uint8, from, to netip.AddrPort) {
	src, dst := uint16(ctIP4Src), uint16(ctIP4Dst)
	if from.Addr().Is6() {
		src, dst = ctIP6Src, ctIP6Dst
	}
	r.nest(ctTupleIP, func() {
		r.Attr(src, from.Addr().AsSlice())
		r.Attr(dst, to.Addr().AsSlice())
	})
	r.nest(ctTupleProto, func() {
		r.Uint8(ctProtoNum, proto)
		r.BE16(ctProtoSrcPort, from.Port())
		r.BE16(ctProtoDstPort, to.Port())
	})
}

func (r *request) translation(to netip.AddrPort) {
	low, high := uint16(natMin4), uint16(natMax4)
	if to.Addr().Is6() {
		low, high = natMin6, natMax6
	}
	r.Attr(low, to.Addr().AsSlice())
	r.Attr(high, to.Addr().AsSlice())
	r.nest(natProto, func() {
		r.BE16(natPortMin, to.Port())
		r.BE16(natPortMax, to.Port())
	})
}

// parseTracked decodes an entry of TCP or UDP; false for others, and for those of another zone than the default.
func parseTracked(body []byte) (state.ConntrackEntry, bool) {
	c := parseConnection(body)
	if c.orig == nil || c.reply == nil || c.zone != nil || c.proto != unix.IPPROTO_TCP && c.proto != unix.IPPROTO_UDP {
		return state.ConntrackEntry{}, false
	}
	out := state.ConntrackEntry{Connection: c.words()}
	number := func(typ uint16) uint32 {
		if v := netlink.Find(body, typ); len(v) == 4 {
			return binary.BigEndian.Uint32(v)
		}
		return 0
	}
	status := number(ctStatus)
	out.SeenReply, out.Assured = status&statusSeenReply != 0, status&statusAssured != 0
	out.Timeout, out.Mark = number(ctTimeout), number(ctMark)
	if c.proto != unix.IPPROTO_TCP {
		return out, true
	}
	octet := func(b []byte, typ uint16) uint8 {
		if v := netlink.Find(b, typ); len(v) > 0 {
			return v[0]
		}
		return 0
	}
	tcp := netlink.Find(netlink.Find(body, ctProtoInfo), ctTCP)
	out.TCP = &state.ConntrackTCP{State: octet(tcp, ctTCPState)}
	for way := range uint16(2) {
		out.TCP.Scale[way], out.TCP.Flags[way] = octet(tcp, ctTCPScale+way), octet(tcp, ctTCPFlags+way)&tcpAgreed
	}
	return out, true
}
