// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"context"
	"fmt"
	"net/netip"
	"slices"

	"github.com/weft-net/weft/internal/kernel/link"
	"github.com/weft-net/weft/internal/kernel/reader"
	"github.com/weft-net/weft/internal/kernel/rtnl"
	"github.com/weft-net/weft/internal/state"
)

// addrs are the addresses that a space names, and all that are on their links.
type addrs struct {
	want   []state.Addr
	links  *links
	reader *reader.Reader
	found  map[string][]link.FoundAddr // by link
	// fresh6 are the links that this Apply has given an IPv6 address.
	fresh6 []string
}

func (a *addrs) read(ctx context.Context) error {
	a.found = map[string][]link.FoundAddr{}
	for _, want := range a.want {
		f, ok := a.links.old(want.Link)
		if _, done := a.found[want.Link]; done || !ok {
			continue
		}
		found, err := a.reader.Addrs(ctx, f.Index)
		if err != nil {
			return err
		}
		a.found[want.Link] = found
	}
	return nil
}

// has tells what is there of an address and whether it is as wanted; one whose duplicate check failed is not.
func (a *addrs) has(want state.Addr) (found *link.FoundAddr, equal bool) {
	for i, have := range a.found[want.Link] {
		if have.Prefix != want.Prefix || want.Peer.IsValid() && have.Peer != want.Peer {
			continue
		}
		return &a.found[want.Link][i], !want.Absent &&
			have.Peer == want.Peer && have.NoPrefixRoute == want.NoPrefixRoute && !have.Failed
	}
	return nil, want.Absent
}

// batch takes off what must not be there, then adds. An address that differs is taken off first: flags of one that is
// there are not changed.
func (a *addrs) batch() []*rtnl.Message {
	var gone, batch []*rtnl.Message
	for _, want := range a.want {
		found, equal := a.has(want)
		if equal {
			continue
		}
		index := a.links.index(want.Link)
		if found != nil {
			gone = append(gone, link.DelAddr(found.Addr, index))
		}
		if want.Absent {
			continue
		}
		batch = append(batch, link.AddAddr(want, index))
		if want.Prefix.Addr().Is6() && !slices.Contains(a.fresh6, want.Link) {
			a.fresh6 = append(a.fresh6, want.Link)
		}
	}
	return append(gone, batch...)
}

// removal takes off those on links of which goes says it.
func (a *addrs) removal(goes func(state.Addr) bool) []*rtnl.Message {
	var batch []*rtnl.Message
	for _, want := range a.want {
		if have, there := a.links.get(want.Link); there && !want.Shared && !want.Absent && goes(want) {
			batch = append(batch, link.DelAddr(want, have.Index))
		}
	}
	return batch
}

// groups are the multicast groups in which a link's wanted IPv6 addresses are asked for.
func (a *addrs) groups(on string) map[netip.Addr]bool {
	groups := map[netip.Addr]bool{}
	for _, want := range a.want {
		if want.Link == on && want.Prefix.Addr().Is6() && !want.Absent {
			groups[solicited(want.Prefix.Addr())] = true
		}
	}
	return groups
}

func (a *addrs) diff(out *diffs) {
	for _, want := range a.want {
		if found, equal := a.has(want); !equal {
			have := ""
			if found != nil {
				have = sayAddr(want, *found)
			}
			out.add(want, have)
		}
	}
}

func (a *addrs) tell(out *state.Space) {
	for _, want := range a.want {
		if found, equal := a.has(want); equal {
			out.Addrs = append(out.Addrs, want)
		} else if found != nil {
			found.Link = want.Link
			out.Addrs = append(out.Addrs, found.Addr)
		}
	}
}

// sayAddr is an address that differs, with what its String does not tell.
func sayAddr(want state.Addr, found link.FoundAddr) string {
	found.Link = want.Link
	s := found.String()
	if found.Failed {
		return s + " (somebody else has it)"
	}
	if found.NoPrefixRoute != want.NoPrefixRoute {
		s += fmt.Sprintf(" (noprefixroute %t)", found.NoPrefixRoute)
	}
	return s
}

// solicited is the group in which an address is asked for (RFC 4291, 2.7.1).
func solicited(a netip.Addr) netip.Addr {
	b, ip := [16]byte{0: 0xff, 1: 0x02, 11: 0x01, 12: 0xff}, a.As16()
	copy(b[13:], ip[13:])
	return netip.AddrFrom16(b)
}
