// SPDX-License-Identifier: Apache-2.0

package effect

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/weft-net/weft/internal/netns"
	"github.com/weft-net/weft/internal/state"
)

// finds is how many dumps are asked for with a filter, in the place of one without: the kernel looks at its whole table
// for each, and to write it down costs about four times as much as that.
const finds = 3

// Found is a tracked connection, as the kernel can be told of it again.
type Found struct {
	state.Connection
	raw connection
}

// Find gives those connections of parties that are chosen. The kernel tells of these parties alone, as far as it can:
// there must not be too many of them, and its filters of IPv6 take all addresses but the given one
// (ctnetlink_filter_match_tuple as of Linux 6.18).
func (k *Tracker) Find(ns *netns.NS, parties []state.Party, choose func(state.Connection) bool) ([]Found, error) {
	by := map[netip.Addr]state.Party{}
	for _, p := range parties {
		o := by[p.Addr]
		by[p.Addr] = state.Party{Addr: p.Addr, Begins: p.Begins || o.Begins, Answers: p.Answers || o.Answers}
	}
	var filters []side
	six := false
	for _, p := range by {
		filters, six = append(filters, sides(p)...), six || p.Addr.Is6()
	}
	type one struct {
		state.Connection
		zone string
	}
	var out []Found
	twice := len(filters) > 1 && len(filters) <= finds // a connection between two of them is told of twice
	have := map[one]bool{}
	look := func(c connection) {
		s := c.words()
		if !by[s.From.Addr()].Begins && !by[s.Answers.Addr()].Answers || !choose(s) {
			return
		}
		if id := (one{s, string(c.zone)}); twice {
			if have[id] {
				return
			}
			have[id] = true
		}
		out = append(out, Found{s, c.clone()})
	}
	err := k.use(ns, func(t tracker) error { return t.find(filters, six, look) })
	return out, err
}

// side is a filter: who begins a connection, or who answers it.
type side struct {
	addr   netip.Addr
	begins bool
}

func sides(p state.Party) []side {
	var out []side
	if p.Begins {
		out = append(out, side{p.Addr, true})
	}
	if p.Answers {
		out = append(out, side{p.Addr, false})
	}
	return out
}

// find hands on the connections that one of the sides is in, and perhaps others.
func (t tracker) find(all []side, six bool, found func(connection)) error {
	if len(all) == 0 {
		return nil
	}
	if six || len(all) > finds {
		family := byte(unix.AF_INET)
		if six {
			family = unix.AF_UNSPEC
		}
		_, err := t.dump(family, nil, found)
		return err
	}
	for _, s := range all {
		obeyed := true
		refused, err := t.dump(unix.AF_INET, &s, func(c connection) {
			if w := c.words(); s.begins && w.From.Addr() != s.addr || !s.begins && w.Answers.Addr() != s.addr {
				obeyed = false
			}
			found(c)
		})
		switch {
		case err != nil:
			return err
		case refused:
			_, err := t.dump(unix.AF_INET, nil, found)
			return err
		case !obeyed: // a kernel that knows no filters (older than 5.8): that was everything
			return nil
		}
	}
	return nil
}

// dump hands on what is tracked of a family, or of one side. A kernel that cannot list has nothing to tell; refused
// says that it does not want the filter.
func (t tracker) dump(family byte, of *side, found func(connection)) (refused bool, err error) {
	var b request
	b.begin(ctGet, 0, family)
	if of != nil {
		b.side(*of)
	}
	why, err := t.table(&b, func(body []byte) {
		if c := parseConnection(body); c.orig != nil {
			found(c)
		}
	})
	switch {
	case err != nil:
		return false, err
	case why == unix.EINVAL || why == unix.EOPNOTSUPP:
		return of != nil, nil
	case why != 0:
		return false, fmt.Errorf("conntrack: list: %w", why)
	}
	return false, nil
}

// side writes a filter.
func (r *request) side(s side) {
	src := uint16(ctIP4Src)
	if s.addr.Is6() {
		src = ctIP6Src
	}
	tuple, orig, reply := uint16(ctTupleOrig), uint32(partSrc), uint32(0)
	if !s.begins {
		tuple, orig, reply = ctTupleReply, 0, partSrc
	}
	r.nest(tuple, func() { r.nest(ctTupleIP, func() { r.Attr(src, s.addr.AsSlice()) }) })
	r.filterFlags(orig, reply)
}

// Forget has the kernel forget connections that were found. One that has ended meanwhile is forgotten.
func (k *Tracker) Forget(ns *netns.NS, all []Found) error {
	for some := range slices.Chunk(all, mostMessages) {
		var b request
		for _, c := range some {
			family := byte(unix.AF_INET)
			if c.raw.v6 {
				family = unix.AF_INET6
			}
			b.begin(ctDelete, unix.NLM_F_ACK, family)
			b.again(c.raw)
		}
		var errs error
		err := k.use(ns, func(t tracker) error {
			return t.each(&b, func(_ int, errno unix.Errno) {
				if errno != 0 && errno != unix.ENOENT {
					errs = errors.Join(errs, fmt.Errorf("conntrack: delete: %w", errno))
				}
			})
		})
		if err = errors.Join(err, errs); err != nil {
			return err
		}
	}
	return nil
}
