// SPDX-License-Identifier: Apache-2.0

package hostlocal

import (
	"fmt"
	"net/netip"
	"strconv"
	"strings"

	"github.com/weft-net/weft/internal/ipam"
	"github.com/weft-net/weft/internal/model"
)

const exhaustedHint = "DEL attachments that are no longer there (weft cni gc), or widen the range"

const overlapHint = "ranges must not overlap: move or shorten one of the two"

// rangeSet is a list of ranges of one family; an attachment gets one address of it.
type rangeSet struct {
	name  string // its path in the configuration
	spans []span
}

func index(name string, i int) string { return name + "[" + strconv.Itoa(i) + "]" }

func readSet(name string, conf []spanConf) (rangeSet, error) {
	set := rangeSet{name: name}
	if len(conf) == 0 {
		return set, ipam.Invalid(`remove it, or add {"subnet": …}`, "%s: empty range set", name)
	}
	for i, c := range conf {
		where := name
		if name != "ipam" {
			where = index(name, i)
		}
		s, err := readSpan(where, c)
		if err != nil {
			return set, err
		}
		if s.start.Is4() != append(set.spans, s)[0].start.Is4() {
			return set, ipam.Invalid("a range set has one family", "%s: %s and %s mix address families", name, set.spans[0], s)
		}
		for _, o := range set.spans {
			if s.overlaps(o) {
				return set, ipam.Invalid(overlapHint, "%s: ranges %s and %s overlap", name, o, s)
			}
		}
		set.spans = append(set.spans, s)
	}
	return set, nil
}

// String lists the ranges.
func (rs rangeSet) String() string {
	words := make([]string, 0, len(rs.spans))
	for _, s := range rs.spans {
		words = append(words, s.String())
	}
	return strings.Join(words, ",")
}

func (rs rangeSet) overlaps(o rangeSet) bool {
	for _, a := range rs.spans {
		for _, b := range o.spans {
			if a.overlaps(b) {
				return true
			}
		}
	}
	return false
}

func (rs rangeSet) at(a netip.Addr) int {
	for i, s := range rs.spans {
		if s.contains(a) {
			return i
		}
	}
	return -1
}

func (rs rangeSet) contains(a netip.Addr) bool { return rs.at(a) >= 0 }

// choose returns the requested address or, without one, the next free one after the last.
func (rs rangeSet) choose(d *directory, last, want netip.Addr) (model.IP, error) {
	var got netip.Addr
	var err error
	if want.IsValid() {
		got, err = want, rs.checkAvailable(d, want)
	} else {
		got, err = rs.next(d, last)
	}
	if err != nil {
		return model.IP{}, err
	}
	return rs.ip(got), nil
}

// ip returns an address of the set for a result.
func (rs rangeSet) ip(a netip.Addr) model.IP {
	s := rs.spans[rs.at(a)]
	return model.IP{Address: netip.PrefixFrom(a, s.subnet.Bits()), Gateway: s.gateway}
}

// checkAvailable returns why a requested address cannot be allocated.
func (rs rangeSet) checkAvailable(d *directory, want netip.Addr) error {
	if s := rs.spans[rs.at(want)]; !s.usable(want) {
		return ipam.Invalid("ask for another address",
			"requested address %s is the gateway, the network or the broadcast address of %s", want, s.subnet)
	}
	free, err := d.isFree(want)
	if err == nil && !free {
		err = model.Errorf(model.CodeExhausted, "ask for another address, or DEL the attachment that has it",
			"requested address %s is not available in %s %s", want, rs.name, rs)
	}
	return err
}

// next searches the set once, beginning after the last allocated address.
func (rs rangeSet) next(d *directory, last netip.Addr) (netip.Addr, error) {
	const patience = 64 // tries, before the directory is listed instead
	tries := 0
	var known map[netip.Addr]bool
	for a := range rs.from(last) {
		if known != nil {
			if !known[a] {
				return a, nil
			}
			continue
		}
		free, err := d.isFree(a)
		if err != nil || free {
			return a, err
		}
		if tries++; tries == patience {
			if known, err = taken(d.path); err != nil {
				return a, fmt.Errorf("list %s: %w", d.path, err)
			}
		}
	}
	return netip.Addr{}, model.Errorf(model.CodeExhausted, exhaustedHint, "no address is free in %s %s (directory %s)",
		rs.name, rs, d.path)
}

// from yields every usable address once, beginning after last; if last is in no range, at the first.
func (rs rangeSet) from(last netip.Addr) func(yield func(netip.Addr) bool) {
	return func(yield func(netip.Addr) bool) {
		begin := rs.at(last)
		if begin < 0 {
			begin, last = 0, netip.Addr{}
		}
		n := len(rs.spans)
		for k := range n + 1 {
			s := rs.spans[(begin+k)%n]
			a, end := s.start, s.end
			if last.IsValid() && k == 0 {
				a = last.Next()
			}
			if k == n {
				if !last.IsValid() {
					return
				}
				end = last
			}
			for ; a.IsValid() && !end.Less(a); a = a.Next() {
				if s.usable(a) && !yield(a) {
					return
				}
			}
		}
	}
}
