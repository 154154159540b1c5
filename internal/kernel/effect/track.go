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

// Further words of linux/netfilter/nfnetlink_conntrack.h and nf_conntrack_common.h.
const (
	ctNew = 0

	ctStatus, ctProtoInfo, ctNATSrc, ctTimeout, ctMark, ctNATDst = 3, 4, 6, 7, 8, 13
	ctTCP                                                        = 1
	ctTCPState, ctTCPScale, ctTCPFlags                           = 1, 2, 4 // of who began it; of who answers is the next
	natMin4, natMax4, natProto, natMin6, natMax6                 = 1, 2, 3, 4, 5
	natPortMin, natPortMax                                       = 1, 2

	statusAnswered, statusAssured, statusConfirmed = 1 << 1, 1 << 2, 1 << 3
	// tcpLiberal has packets outside of the window that is known count as well: of what was said before, nothing is known.
	// tcpAgreed are the flags that the ends have agreed upon; the others are the kernel's own notes.
	tcpLiberal, tcpAgreed = 0x08, 0x03
)

// List gives the connections of TCP and UDP that are chosen, as they are tracked in a namespace now.
func (k *Tracker) List(ns *netns.NS, choose func(state.Connection) bool) ([]state.Tracked, error) {
	var out []state.Tracked
	err := k.use(ns, func(t tracker) error {
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
				return nil // a kernel that tracks nothing
			case refused != 0:
				return fmt.Errorf("conntrack: list: %w", refused)
			}
		}
		return nil
	})
	return out, err
}

// Track has a namespace track connections. Of one that it tracks already only the time is lengthened, where longer says
// so; it is never shortened.
func (k *Tracker) Track(ns *netns.NS, all []state.Tracked, longer bool) error {
	for some := range slices.Chunk(all, mostMessages) {
		if err := k.use(ns, func(t tracker) error { return t.make(some, longer) }); err != nil {
			return err
		}
	}
	return nil
}

// mostMessages are in one datagram: the kernel gives each a buffer of about 1 kB for its answer, and the socket has 208
// kB of room where nobody has set less.
const mostMessages = 128

// Loosen has packets of connections of TCP count that are outside of the window that was seen: part of what belongs to
// them goes another way.
func (k *Tracker) Loosen(ns *netns.NS, all []state.Tracked) error {
	all = slices.DeleteFunc(slices.Clone(all), func(c state.Tracked) bool { return c.TCP == nil })
	for some := range slices.Chunk(all, mostMessages) {
		var b request
		for _, c := range some {
			b.begin(ctNew, unix.NLM_F_ACK, familyOfTracked(c))
			b.nest(ctTupleOrig, func() { b.tuple(c.Proto, c.From, c.To) })
			b.nest(ctProtoInfo, func() {
				b.nest(ctTCP, func() {
					for way := range uint16(2) {
						b.Attr(ctTCPFlags+way, []byte{tcpLiberal, tcpLiberal})
					}
				})
			})
		}
		var errs error
		err := k.use(ns, func(t tracker) error {
			return t.each(&b, func(_ int, errno unix.Errno) {
				if errno != 0 && errno != unix.ENOENT { // it has ended meanwhile
					errs = errors.Join(errs, fmt.Errorf("conntrack: loosen: %w", errno))
				}
			})
		})
		if err = errors.Join(err, errs); err != nil {
			return err
		}
	}
	return nil
}

func (t tracker) make(all []state.Tracked, longer bool) error {
	var b request
	for _, c := range all {
		b.begin(ctNew, unix.NLM_F_ACK|unix.NLM_F_CREATE|unix.NLM_F_EXCL, familyOfTracked(c))
		b.track(c)
	}
	answered := 0
	var known []state.Tracked
	var errs error
	err := t.each(&b, func(i int, errno unix.Errno) {
		answered++
		c := all[i]
		switch errno {
		case 0:
		case unix.EEXIST:
			known = append(known, c)
		default:
			errs = errors.Join(errs, fmt.Errorf("conntrack: track %s to %s: %w", c.From, c.To, errno))
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
		b.nest(ctTupleOrig, func() { b.tuple(c.Proto, c.From, c.To) })
		b.BE32(ctTimeout, c.Timeout)
	}
	err = t.each(&b, func(_ int, errno unix.Errno) {
		if errno != 0 && errno != unix.ENOENT { // it has ended meanwhile, or goes the other way
			errs = errors.Join(errs, fmt.Errorf("conntrack: lengthen: %w", errno))
		}
	})
	return errors.Join(err, errs)
}

func familyOfTracked(c state.Tracked) byte {
	if c.From.Addr().Is6() {
		return unix.AF_INET6
	}
	return unix.AF_INET
}

// track writes a connection. The kernel makes the answers' way of the first one and of the translation.
func (r *request) track(c state.Tracked) {
	r.nest(ctTupleOrig, func() { r.tuple(c.Proto, c.From, c.To) })
	r.nest(ctTupleReply, func() { r.tuple(c.Proto, c.To, c.From) })
	if c.Answers != c.To {
		r.nest(ctNATDst, func() { r.translation(c.Answers) })
	}
	if c.Back != c.From {
		r.nest(ctNATSrc, func() { r.translation(c.Back) })
	}
	status := uint32(statusConfirmed)
	if c.Answered {
		status |= statusAnswered
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

// parseTracked reads a connection of TCP or UDP; false for others, and for those of another zone than the usual one.
func parseTracked(body []byte) (state.Tracked, bool) {
	c := parseConnection(body)
	if c.orig == nil || c.reply == nil || c.zone != nil || c.proto != unix.IPPROTO_TCP && c.proto != unix.IPPROTO_UDP {
		return state.Tracked{}, false
	}
	out := state.Tracked{Connection: c.words()}
	number := func(typ uint16) uint32 {
		if v := netlink.Find(body, typ); len(v) == 4 {
			return binary.BigEndian.Uint32(v)
		}
		return 0
	}
	status := number(ctStatus)
	out.Answered, out.Assured = status&statusAnswered != 0, status&statusAssured != 0
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
	out.TCP = &state.TrackedTCP{State: octet(tcp, ctTCPState)}
	for way := range uint16(2) {
		out.TCP.Scale[way], out.TCP.Flags[way] = octet(tcp, ctTCPScale+way), octet(tcp, ctTCPFlags+way)&tcpAgreed
	}
	return out, true
}
