// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"context"
	"fmt"
	"net/netip"
	"slices"

	"github.com/weft-net/weft/internal/kernel/effect"
	"github.com/weft-net/weft/internal/kernel/link"
	"github.com/weft-net/weft/internal/kernel/reader"
	"github.com/weft-net/weft/internal/kernel/rtnl"
	"github.com/weft-net/weft/internal/state"
)

// addrs are the addresses that a space names, and all addresses on their links.
type addrs struct {
	want   []state.Addr
	links  *links
	reader *reader.Reader
	found  map[string][]link.FoundAddr // by link
	// fresh6 are the links to which this Apply added an IPv6 address.
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

// has returns the address found for a wanted one, if any, and reports whether it is as wanted; one that failed
// duplicate address detection is not.
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

// adds reports whether batch adds an address to a link.
func (a *addrs) adds(on string, addr netip.Addr) bool {
	return slices.ContainsFunc(a.want, func(want state.Addr) bool {
		_, equal := a.has(want)
		return want.Link == on && want.Prefix.Addr() == addr && !want.Absent && !equal
	})
}

// batch deletes the addresses that must be absent, then adds. An address that differs is deleted first: the flags of an
// existing one cannot be changed.
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

// removal deletes the addresses that goes selects.
func (a *addrs) removal(goes func(state.Addr) bool) []*rtnl.Message {
	var batch []*rtnl.Message
	for _, want := range a.want {
		if have, there := a.links.get(want.Link); there && !want.Shared && !want.Absent && goes(want) {
			batch = append(batch, link.DelAddr(want, have.Index))
		}
	}
	return batch
}

// groups returns the solicited-node multicast groups of a link's wanted IPv6 addresses.
func (a *addrs) groups(on string) map[netip.Addr]bool {
	groups := map[netip.Addr]bool{}
	for _, want := range a.want {
		if want.Link == on && want.Prefix.Addr().Is6() && !want.Absent {
			groups[effect.SolicitedNode(want.Prefix.Addr())] = true
		}
	}
	return groups
}

func (a *addrs) diff(out *diffs) {
	for _, want := range a.want {
		if found, equal := a.has(want); !equal {
			have := ""
			if found != nil {
				have = describeAddr(want, *found)
			}
			out.add(want, have)
		}
	}
}

func (a *addrs) report(out *state.Space) {
	for _, want := range a.want {
		if found, equal := a.has(want); equal {
			out.Addrs = append(out.Addrs, want)
		} else if found != nil {
			found.Link = want.Link
			out.Addrs = append(out.Addrs, found.Addr)
		}
	}
}

// describeAddr prints an address that differs, with properties that its String omits.
func describeAddr(want state.Addr, found link.FoundAddr) string {
	found.Link = want.Link
	s := found.String()
	if found.Failed {
		return s + " (duplicate: another host has it)"
	}
	if found.NoPrefixRoute != want.NoPrefixRoute {
		s += fmt.Sprintf(" (noprefixroute %t)", found.NoPrefixRoute)
	}
	return s
}
