// SPDX-License-Identifier: Apache-2.0

package speaker

import (
	"fmt"
	"net/netip"
	"reflect"
	"slices"

	"github.com/weft-net/weft/internal/plan/bgp"
)

// resolve sets the wanted configuration to the one that was asked for, with the addresses of peers on links.
func (s *Speaker) resolve() {
	s.want, s.missing = s.asked, map[string]error{}
	s.want.Peers = slices.Clone(s.asked.Peers)
	for i := range s.want.Peers {
		p := &s.want.Peers[i]
		if p.Interface == "" {
			continue
		}
		router, err := s.links.Router(p.Interface, s.usedOn(p.Interface))
		if other, ok := s.conflict(*p, router); router.IsValid() && ok {
			router, err = netip.Addr{}, fmt.Errorf("interface %s: its router %s has a session by BGPPeer %s, or its address is that of "+
				"a router on another link with other filters: delete one of the two, or change the address", p.Interface, router, other)
		}
		if p.Addr = router; err != nil {
			s.missing[p.Interface] = err
		}
	}
}

// conflict returns another peer that has a router's address. A router on another link may have the same link-local one, but
// not other filters: those are by address.
func (s *Speaker) conflict(p bgp.Peer, router netip.Addr) (name string, ok bool) {
	i := slices.IndexFunc(s.want.Peers, func(o bgp.Peer) bool {
		return o.Where() != p.Where() && o.Addr.IsValid() &&
			(o.Addr == router || o.Addr.WithZone("") == router.WithZone("") && !reflect.DeepEqual(filters(o), filters(p)))
	})
	if i < 0 {
		return "", false
	}
	return s.want.Peers[i].Name, true
}

// filters returns what of a peer is applied by its address.
func filters(p bgp.Peer) bgp.Peer {
	return bgp.Peer{
		Import: p.Import, Export: p.Export, Default: p.Default, Pods: p.Pods, NextHopSelf: p.NextHopSelf, NextHopKeep: p.NextHopKeep,
	}
}

// usedOn returns the address of the peer on a link with which a session is established.
func (s *Speaker) usedOn(link string) netip.Addr {
	for _, p := range s.have.Peers {
		if p.Interface == link && !s.heard[p.Addr].since.IsZero() {
			return p.Addr
		}
	}
	return netip.Addr{}
}
