// SPDX-License-Identifier: Apache-2.0

package speaker

import (
	"context"
	"fmt"
	"net/netip"
	"reflect"
	"slices"
	"strings"

	"github.com/osrg/gobgp/v4/api"
	"github.com/osrg/gobgp/v4/pkg/apiutil"
	gobgp "github.com/osrg/gobgp/v4/pkg/packet/bgp"

	"github.com/weft-net/weft/internal/plan/bgp"
)

// sessions adds, changes and deletes peers. What was done is in s.have, also if a later one fails.
func (s *Speaker) sessions(ctx context.Context) error {
	notFound := func(p bgp.Peer) bool { return !p.Addr.IsValid() }
	s.have.Peers = slices.DeleteFunc(slices.Clone(s.have.Peers), notFound)
	for _, old := range slices.Clone(s.have.Peers) {
		i := slices.IndexFunc(s.want.Peers, func(p bgp.Peer) bool { return p.Addr == old.Addr })
		if i >= 0 && reflect.DeepEqual(session(old), session(s.want.Peers[i])) {
			continue
		}
		if err := s.bgp.DeletePeer(ctx, &api.DeletePeerRequest{Address: old.Addr.String()}); err != nil {
			return fmt.Errorf("peer %s (%s): %w", old.Where(), old.Name, err)
		}
		s.have.Peers = slices.DeleteFunc(slices.Clone(s.have.Peers), func(p bgp.Peer) bool { return p.Addr == old.Addr })
		delete(s.heard, old.Addr)
		delete(s.lastError, old.Addr)
		delete(s.states, old.Addr)
	}
	for _, p := range s.want.Peers {
		if notFound(p) {
			continue
		}
		if slices.ContainsFunc(s.have.Peers, func(o bgp.Peer) bool { return o.Addr == p.Addr }) {
			continue
		}
		if err := s.bgp.AddPeer(ctx, &api.AddPeerRequest{Peer: peer(s.want, p)}); err != nil {
			return fmt.Errorf("peer %s (%s): %w", p.Addr, p.Name, err)
		}
		s.have.Peers = append(slices.Clip(s.have.Peers), p)
	}
	return nil
}

// session returns what of a peer needs another session when it changes.
func session(p bgp.Peer) bgp.Peer {
	p.Name, p.Import, p.Export, p.Default, p.Pods, p.NextHopSelf, p.NextHopKeep = "", nil, nil, false, false, false, false
	return p
}

// familiesOf returns the families of a session: that of the addresses, and without configured ones both.
func familiesOf(p bgp.Peer) []gobgp.Family {
	if p.Interface != "" {
		return families()
	}
	if p.Addr.Is6() {
		return []gobgp.Family{gobgp.RF_IPv6_UC}
	}
	return []gobgp.Family{gobgp.RF_IPv4_UC}
}

func peer(c bgp.Speaker, p bgp.Peer) *api.Peer {
	keepalive := uint64(p.Keepalive)
	if keepalive == 0 {
		keepalive = bgp.HoldTime / 3
	}
	out := &api.Peer{
		Conf: &api.PeerConf{
			NeighborAddress: p.Addr.String(), PeerAsn: p.ASN, LocalAsn: p.LocalASN, AuthPassword: p.Password, Description: p.Name,
			AllowOwnAsn: uint32(p.AllowOwnAS),
		},
		Timers: &api.Timers{Config: &api.TimersConfig{
			ConnectRetry: connectRetry, HoldTime: 3 * keepalive, KeepaliveInterval: keepalive, IdleHoldTimeAfterReset: connectRetry,
		}},
		Transport: &api.Transport{RemotePort: uint32(p.Port), PassiveMode: p.Passive},
		GracefulRestart: &api.GracefulRestart{
			Enabled: true, RestartTime: uint32(min(p.RestartTime, 4095)), DeferralTime: deferral, LocalRestarting: true,
			NotificationEnabled: true,
		},
	}
	if p.Source.IsValid() {
		out.Transport.LocalAddress = p.Source.String()
	}
	if !p.Internal(c) {
		if p.TTLSecurity > 0 {
			out.TtlSecurity = &api.TtlSecurity{Enabled: true, TtlMin: uint32(256 - p.TTLSecurity)}
		} else {
			out.EbgpMultihop = &api.EbgpMultihop{Enabled: true, MultihopTtl: 255}
		}
	}
	if p.Client {
		out.RouteReflector = &api.RouteReflector{RouteReflectorClient: true, RouteReflectorClusterId: p.ClusterID.String()}
	}
	for _, f := range familiesOf(p) {
		out.AfiSafis = append(out.AfiSafis, &api.AfiSafi{
			Config:            &api.AfiSafiConfig{Family: family(f), Enabled: true},
			MpGracefulRestart: &api.MpGracefulRestart{Config: &api.MpGracefulRestartConfig{Enabled: true}},
			PrefixLimits:      &api.PrefixLimit{Family: family(f), MaxPrefixes: bgp.MaxPrefixes},
		})
	}
	return out
}

func family(f gobgp.Family) *api.Family { return apiutil.ToApiFamily(f.Afi(), f.Safi()) }

// announce adds and withdraws the node's own routes.
func (s *Speaker) announce() error {
	wanted := map[netip.Prefix]bgp.Announced{}
	for _, a := range s.want.Announced {
		wanted[a.Prefix] = a
	}
	for prefix, a := range s.announced {
		if _, ok := wanted[prefix]; ok {
			continue
		}
		path, err := ownPath(a)
		if err == nil {
			err = s.bgp.DeletePath(apiutil.DeletePathRequest{Paths: []*apiutil.Path{path}})
		}
		if err != nil {
			return fmt.Errorf("withdraw %s: %w", prefix, err)
		}
		delete(s.announced, prefix)
	}
	for prefix, a := range wanted {
		if old, ok := s.announced[prefix]; ok && reflect.DeepEqual(old, a) {
			continue
		}
		path, err := ownPath(a)
		if err == nil {
			_, err = s.bgp.AddPath(apiutil.AddPathRequest{Paths: []*apiutil.Path{path}})
		}
		if err != nil {
			return fmt.Errorf("announce %s: %w", prefix, err)
		}
		s.announced[prefix] = a
	}
	return nil
}

// ownPath returns a route of the node's own. Its next hop is the address of each session.
func ownPath(a bgp.Announced) (*apiutil.Path, error) {
	nlri, err := gobgp.NewIPAddrPrefix(a.Prefix)
	if err != nil {
		return nil, err
	}
	out := &apiutil.Path{Nlri: nlri, Family: gobgp.RF_IPv4_UC, Attrs: []gobgp.PathAttributeInterface{gobgp.NewPathAttributeOrigin(0)}}
	if a.Prefix.Addr().Is6() {
		out.Family = gobgp.RF_IPv6_UC
		reach, err := gobgp.NewPathAttributeMpReachNLRI(gobgp.RF_IPv6_UC, []gobgp.PathNLRI{{NLRI: nlri}}, netip.IPv6Unspecified())
		if err != nil {
			return nil, err
		}
		out.Attrs = append(out.Attrs, reach)
	} else {
		hop, err := gobgp.NewPathAttributeNextHop(netip.IPv4Unspecified())
		if err != nil {
			return nil, err
		}
		out.Attrs = append(out.Attrs, hop)
	}
	var plain []uint32
	var large []*gobgp.LargeCommunity
	for _, text := range a.Communities {
		var x, y, z uint32
		if n, _ := fmt.Sscanf(text, "%d:%d:%d", &x, &y, &z); n == 3 {
			large = append(large, gobgp.NewLargeCommunity(x, y, z))
		} else if n == 2 {
			plain = append(plain, x<<16|y&0xffff)
		}
	}
	if len(plain) > 0 {
		out.Attrs = append(out.Attrs, gobgp.NewPathAttributeCommunities(plain))
	}
	if len(large) > 0 {
		out.Attrs = append(out.Attrs, gobgp.NewPathAttributeLargeCommunities(large))
	}
	return out, nil
}

// reason returns why a session was lost, empty if that is not known.
func reason(r api.PeerState_DisconnectReason, message string) string {
	name := strings.ToLower(strings.ReplaceAll(strings.TrimPrefix(r.String(), "DISCONNECT_REASON_"), "_", " "))
	switch {
	case name == "unspecified":
		return message
	case message == "":
		return name
	}
	return name + ": " + message
}
