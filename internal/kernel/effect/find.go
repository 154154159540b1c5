// SPDX-License-Identifier: Apache-2.0

package effect

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/weft-net/weft/internal/kernel/netlink"
	"github.com/weft-net/weft/internal/netns"
	"github.com/weft-net/weft/internal/state"
)

// maxFilteredDumps is how many filtered dumps are requested instead of an unfiltered one: for each the kernel walks its
// whole table, and encoding all entries costs about four times as much as that.
const maxFilteredDumps = 3

// Found is a conntrack entry that can be deleted later.
type Found struct {
	state.Connection
	// Finished: a TCP connection that was reset, or that both ends have closed. Neither sends anything any more.
	Finished bool
	raw      connection
}

// finished reports whether an entry is of a TCP connection that has ended (enum tcp_conntrack of
// linux/netfilter/nf_conntrack_tcp.h).
func finished(body []byte) bool {
	const timeWait, closed = 7, 8
	v := netlink.Find(netlink.Find(netlink.Find(body, ctProtoInfo), ctTCP), ctTCPState)
	return len(v) == 1 && (v[0] == timeWait || v[0] == closed)
}

// Find returns the conntrack entries of the peers that choose selects. The kernel filters by the peers if possible:
// if they are few, and IPv4, because its IPv6 filters match all addresses except the given one
// (ctnetlink_filter_match_tuple as of Linux 6.18).
func (k *Conntrack) Find(
	ns *netns.NS, peers []state.ConntrackPeer, choose func(state.Connection) bool,
) ([]Found, error) {
	by := map[netip.Addr]state.ConntrackPeer{}
	for _, p := range peers {
		o := by[p.Addr]
		by[p.Addr] = state.ConntrackPeer{
			Addr:       p.Addr,
			Originates: p.Originates || o.Originates,
			Responds:   p.Responds || o.Responds,
		}
	}
	var filters []side
	for _, p := range by {
		filters = append(filters, sides(p)...)
	}
	type one struct {
		state.Connection
		zone string
	}
	var out []Found
	twice := len(filters) > 1 && len(filters) <= maxFilteredDumps // a connection between two of them is dumped twice
	have := map[one]bool{}
	take := func(body []byte) {
		c := parseConnection(body)
		s := c.words()
		if !by[s.Src.Addr()].Originates && !by[s.ReplySrc.Addr()].Responds || !choose(s) {
			return
		}
		if id := (one{s, string(c.zone)}); twice {
			if have[id] {
				return
			}
			have[id] = true
		}
		out = append(out, Found{s, finished(body), c.clone()})
	}
	err := k.use(ns, func(t conn) error { return t.find(filters, take) })
	return out, err
}

// side is a filter for the originator of a connection, or its responder.
type side struct {
	addr   netip.Addr
	begins bool
}

func sides(p state.ConntrackPeer) []side {
	var out []side
	if p.Originates {
		out = append(out, side{p.Addr, true})
	}
	if p.Responds {
		out = append(out, side{p.Addr, false})
	}
	return out
}

// find calls found for the entries of the sides, and possibly for others.
func (t conn) find(all []side, found func(body []byte)) error {
	var four []side
	for _, s := range all {
		if s.addr.Is4() {
			four = append(four, s)
		}
	}
	six := len(four) < len(all)
	switch {
	case six && len(four) > maxFilteredDumps:
		_, err := t.dump(unix.AF_UNSPEC, nil, found)
		return err
	case six:
		if _, err := t.dump(unix.AF_INET6, nil, found); err != nil {
			return err
		}
	case len(four) > maxFilteredDumps:
		_, err := t.dump(unix.AF_INET, nil, found)
		return err
	}
	for _, s := range four {
		obeyed := true
		refused, err := t.dump(unix.AF_INET, &s, func(body []byte) {
			if w := parseConnection(body).words(); s.begins && w.Src.Addr() != s.addr || !s.begins && w.ReplySrc.Addr() != s.addr {
				obeyed = false
			}
			found(body)
		})
		switch {
		case err != nil:
			return err
		case refused:
			_, err := t.dump(unix.AF_INET, nil, found)
			return err
		case !obeyed: // a kernel without filters (older than 5.8): it dumped everything
			return nil
		}
	}
	return nil
}

// dump calls found for the entries of a family, or of one side. A kernel that cannot list has no entries; refused means
// that it does not support the filter.
func (t conn) dump(family byte, of *side, found func(body []byte)) (refused bool, err error) {
	var b request
	b.begin(ctGet, 0, family)
	if of != nil {
		b.side(*of)
	}
	why, err := t.table(&b, func(body []byte) {
		if netlink.Find(body, ctTupleOrig) != nil {
			found(body)
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

// side adds a filter.
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

// Delete deletes entries that were found. An expired entry is no error.
func (k *Conntrack) Delete(ns *netns.NS, all []Found) error {
	for some := range slices.Chunk(all, maxMessages) {
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
		err := k.use(ns, func(t conn) error {
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
