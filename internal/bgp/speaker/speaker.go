// SPDX-License-Identifier: Apache-2.0

// Package speaker speaks BGP by GoBGP's library, whose types are in this package only. It makes GoBGP's configuration
// equal to a value, and reports learned routes and the state of sessions. It never reads or writes the kernel's routes.
//
// # Restarts
//
// The speaker always reports that it has restarted with its forwarding state preserved (RFC 4724): the routes of an earlier
// speaker are in the kernel, and those of a first one are not waited for. It announces at most a second after a session is
// established, because peers may wait for it. It closes no session when it ends, so peers keep its routes for the restart
// time.
package speaker

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/osrg/gobgp/v4/api"
	"github.com/osrg/gobgp/v4/pkg/apiutil"
	gobgp "github.com/osrg/gobgp/v4/pkg/packet/bgp"
	"github.com/osrg/gobgp/v4/pkg/server"

	"github.com/weft-net/weft/internal/bgp/discovery"
	"github.com/weft-net/weft/internal/notify"
	"github.com/weft-net/weft/internal/plan/bgp"
)

const (
	// deferral is how long announcements wait for the routes of other peers after a restart, in seconds.
	deferral = 1
	// connectRetry is the pause between two attempts to connect, in seconds. GoBGP's own is two minutes.
	connectRetry = 5
	// settle is after how long an established session gets all announcements again. GoBGP 4.8 loses a change of a route
	// that happens after it has read the announcements of a new session, and before it has recorded that the session is
	// established; the peer would never learn of that route.
	settle = 2 * time.Second
	// patience is how long an established session may take to announce its routes, if it does not say when it has.
	patience = 10 * time.Second
)

// Speaker is a BGP speaker. Its methods may be called concurrently.
type Speaker struct {
	log *slog.Logger
	now func() time.Time
	// routes and peers report changes of what Routes and Peers return.
	routes, peers notify.Chan

	links *discovery.Links

	mu   sync.Mutex
	bgp  *server.BgpServer // nil before the first configuration
	stop context.CancelFunc
	// asked is the configuration, want the same with the addresses of the peers that were found on their links; missing is
	// why others were not, by interface.
	asked   bgp.Speaker
	want    bgp.Speaker
	missing map[string]error
	have    bgp.Speaker
	heard   map[netip.Addr]heard
	started time.Time
	synced  bool
	// listenErr is why connections are not accepted, failed why something else is not in force.
	listenErr, failed error
	// announced are the paths that GoBGP has.
	announced map[netip.Prefix]bgp.Announced
	lastError map[netip.Addr]string
	// states are those of the sessions, and counts their prefixes as Routes has read them last.
	states map[netip.Addr]string
	counts map[netip.Addr]counts
}

// counts are the numbers of a session's prefixes.
type counts struct{ received, accepted, advertised uint64 }

// heard is what a session has said.
type heard struct {
	since time.Time // when it was established, zero if it is not
	ended map[gobgp.Family]bool
	at    time.Time // when the state changed last
}

// New returns a Speaker that does nothing before Set.
func New(log *slog.Logger, now func() time.Time) *Speaker {
	return &Speaker{
		log: log, now: now, routes: notify.New(), peers: notify.New(), heard: map[netip.Addr]heard{},
		announced: map[netip.Prefix]bgp.Announced{}, lastError: map[netip.Addr]string{}, states: map[netip.Addr]string{},
		links: discovery.New(log.With("component", "discovery"), now),
	}
}

// Run follows the peers on links until ctx ends: one that is found gets a session.
func (s *Speaker) Run(ctx context.Context) {
	defer s.links.Set(nil)
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.links.Changed():
		}
		s.mu.Lock()
		if s.bgp != nil {
			if err := s.apply(ctx); err != nil {
				s.log.Error("configuration is not in force; it is tried again", "err", err)
			}
			s.routes.Notify()
		}
		s.mu.Unlock()
	}
}

// RoutesChanged receives a token when routes, or the numbers of them, may have changed.
func (s *Speaker) RoutesChanged() <-chan struct{} { return s.routes }

// PeersChanged receives a token when only the states of sessions may have changed: no route has to be read for it.
func (s *Speaker) PeersChanged() <-chan struct{} { return s.peers }

// Set makes the speaker equal to a configuration. Sessions whose settings are unchanged continue. The error says what is
// not in force; a later call retries it.
func (s *Speaker) Set(ctx context.Context, want bgp.Speaker) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked = want
	var links []string
	for _, p := range want.Peers {
		if p.Interface != "" {
			links = append(links, p.Interface)
		}
	}
	s.links.Set(links)
	defer s.routes.Notify()
	return s.apply(ctx)
}

// Retry applies the last configuration again if it is not in force: the port may be free now.
func (s *Speaker) Retry(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.links.Retry()
	if s.bgp != nil && s.failed != nil {
		defer s.routes.Notify()
		return s.apply(ctx)
	}
	if s.bgp == nil || s.listenErr == nil || s.established() > 0 {
		return s.listenErr
	}
	if err := s.probe(); err != nil {
		return s.listenErr
	}
	s.log.Info("the port is free now", "port", s.want.Port)
	s.end()
	defer s.routes.Notify()
	return s.apply(ctx)
}

// established returns how many sessions are.
func (s *Speaker) established() (n int) {
	for _, h := range s.heard {
		if !h.since.IsZero() {
			n++
		}
	}
	return n
}

// probe returns why the port cannot be listened on, nil if it can.
func (s *Speaker) probe() error {
	for _, a := range listenAddrs(s.want) {
		l, err := net.Listen("tcp", net.JoinHostPort(a, strconv.Itoa(s.want.Port)))
		if err != nil {
			return err
		}
		_ = l.Close()
	}
	return nil
}

func listenAddrs(c bgp.Speaker) []string {
	var out []string
	for _, a := range c.Listen {
		out = append(out, a.String())
	}
	if len(out) == 0 {
		out = []string{"0.0.0.0", "::"}
	}
	return out
}

// global is the part of a configuration that needs a new server.
func global(c bgp.Speaker) bgp.Speaker {
	return bgp.Speaker{ASN: c.ASN, RouterID: c.RouterID, Port: c.Port, Listen: c.Listen}
}

func (s *Speaker) apply(ctx context.Context) error {
	if s.failed = s.configure(ctx); s.failed != nil {
		return s.failed
	}
	return s.listenErr
}

func (s *Speaker) configure(ctx context.Context) error {
	s.resolve()
	if s.bgp != nil && !reflect.DeepEqual(global(s.have), global(s.want)) {
		s.log.Info("speaker is started again with other settings", "as", s.want.ASN, "router-id", s.want.RouterID)
		s.end()
	}
	if s.bgp == nil {
		if err := s.start(ctx); err != nil {
			return err
		}
	}
	if err := s.policies(ctx); err != nil {
		return fmt.Errorf("filters: %w", err)
	}
	if err := s.sessions(ctx); err != nil {
		return err
	}
	if err := s.announce(); err != nil {
		return err
	}
	s.have = s.want
	return nil
}

// start starts a server. If the port is taken, it runs without: sessions that this side opens are established.
func (s *Speaker) start(ctx context.Context) error {
	level := &slog.LevelVar{}
	level.Set(slog.LevelWarn)
	b := server.NewBgpServer(server.LoggerOption(s.log.With("component", "gobgp"), level))
	go b.Serve()
	g := &api.Global{
		Asn: s.want.ASN, RouterId: s.want.RouterID.String(), ListenPort: int32(s.want.Port), UseMultiplePaths: true,
		ListenAddresses: listenAddrs(s.want),
	}
	s.listenErr = nil
	if err := s.probe(); err != nil {
		s.listenErr = fmt.Errorf("sessions are not accepted: port %d: %w", s.want.Port, err)
		s.log.Error("another program has the port of BGP; only sessions that this node opens are established", "err", s.listenErr)
		g.ListenPort = -1
	}
	if err := b.StartBgp(ctx, &api.StartBgpRequest{Global: g}); err != nil {
		b.Stop()
		return fmt.Errorf("start: %w", err)
	}
	watch, stop := context.WithCancel(context.Background())
	err := b.WatchEvent(watch, server.WatchEventMessageCallbacks{
		OnBestPath:   func([]*apiutil.Path, time.Time) { s.routes.Notify() },
		OnPathEor:    func(p *apiutil.Path, _ time.Time) { s.ended(p) },
		OnPeerUpdate: func(e *apiutil.WatchEventMessage_PeerEvent, _ time.Time) { s.session(e) },
	}, server.WatchBestPath(false), server.WatchEor(false), server.WatchPeer())
	if err != nil {
		stop()
		b.Stop()
		return fmt.Errorf("events: %w", err)
	}
	s.bgp, s.stop, s.have, s.started, s.synced = b, stop, global(s.want), s.now(), false
	clear(s.heard)
	clear(s.states)
	clear(s.announced)
	return nil
}

// end stops the server. Peers keep its routes.
func (s *Speaker) end() {
	s.stop()
	_ = s.bgp.StopBgp(context.Background(), &api.StopBgpRequest{AllowGracefulRestart: true})
	s.bgp.Stop()
	s.bgp, s.have = nil, bgp.Speaker{}
}

// ended records that a peer has announced all of its routes of a family.
func (s *Speaker) ended(p *apiutil.Path) {
	s.mu.Lock()
	defer s.mu.Unlock()
	h := s.heard[p.PeerAddress.Unmap()]
	if h.ended == nil {
		h.ended = map[gobgp.Family]bool{}
	}
	h.ended[p.Family] = true
	s.heard[p.PeerAddress.Unmap()] = h
	s.peers.Notify()
}

// session records the state of a session.
func (s *Speaker) session(e *apiutil.WatchEventMessage_PeerEvent) {
	s.mu.Lock()
	defer s.mu.Unlock()
	addr := e.Peer.State.NeighborAddress.Unmap()
	h := s.heard[addr]
	up := e.Peer.State.SessionState == gobgp.BGP_FSM_ESTABLISHED
	if up == h.since.IsZero() { // a peer that is away makes an attempt every few seconds, which is no change of routes
		defer s.routes.Notify()
	}
	switch {
	case up && h.since.IsZero():
		h.since, h.at = s.now(), s.now()
		delete(s.lastError, addr)
		s.log.Info("session is established", "peer", addr)
		s.repeatLater(addr, h.since)
	case !up && !h.since.IsZero():
		h = heard{at: s.now()}
		if addr.Zone() != "" {
			s.links.Recheck() // another router may have taken its place
		}
		s.log.Warn("session is lost", "peer", addr, "reason", reason(e.Peer.State.DisconnectReason, e.Peer.State.DisconnectMessage))
	}
	if text := reason(e.Peer.State.DisconnectReason, e.Peer.State.DisconnectMessage); !up && text != "" {
		s.lastError[addr] = text
	}
	s.heard[addr] = h
	s.states[addr] = strings.ToLower(strings.TrimPrefix(e.Peer.State.SessionState.String(), "BGP_FSM_"))
	s.peers.Notify()
}

// repeatLater announces all routes to a peer again after settle, if it still has the session that was established then.
func (s *Speaker) repeatLater(addr netip.Addr, since time.Time) {
	b := s.bgp
	if b == nil { // the server was stopped before its last event was read
		return
	}
	time.AfterFunc(settle, func() {
		recorded := false // GoBGP repeats nothing to a session that it has not recorded
		_ = b.ListPeer(context.Background(), &api.ListPeerRequest{Address: addr.String()}, func(p *api.Peer) {
			recorded = p.GetState().GetSessionState() == api.PeerState_SESSION_STATE_ESTABLISHED
		})
		s.mu.Lock()
		defer s.mu.Unlock()
		switch {
		case s.bgp != b || !s.heard[addr].since.Equal(since):
		case !recorded:
			s.repeatLater(addr, since)
		default:
			err := b.ResetPeer(context.Background(), &api.ResetPeerRequest{
				Address: addr.String(), Soft: true, Direction: api.ResetPeerRequest_DIRECTION_OUT,
			})
			if err != nil {
				s.log.Warn("routes are not announced again", "peer", addr, "err", err)
			}
		}
	})
}

// Routes reads all routes, and returns the learned ones that were chosen, sorted by prefix. It also counts the routes of
// each peer, for Peers.
func (s *Speaker) Routes(ctx context.Context) ([]bgp.Route, error) {
	s.mu.Lock()
	b := s.bgp
	internal := map[netip.Addr]bool{}
	for _, p := range s.have.Peers {
		internal[p.Addr] = p.Internal(s.have)
	}
	s.mu.Unlock()
	if b == nil {
		return nil, nil
	}
	counted := map[netip.Addr]counts{}
	err := b.ListPeer(ctx, &api.ListPeerRequest{EnableAdvertised: true}, func(p *api.Peer) {
		a, err := netip.ParseAddr(p.GetState().GetNeighborAddress())
		if err != nil {
			return
		}
		var c counts
		for _, f := range p.GetAfiSafis() {
			c.received += f.GetState().GetReceived()
			c.advertised += f.GetState().GetAdvertised()
		}
		counted[a.Unmap()] = c
	})
	if err != nil {
		return nil, fmt.Errorf("sessions: %w", err)
	}
	var out []bgp.Route
	for _, family := range families() {
		err := b.ListPath(apiutil.ListPathRequest{TableType: api.TableType_TABLE_TYPE_GLOBAL, Family: family},
			func(_ gobgp.NLRI, paths []*apiutil.Path) {
				for _, p := range paths { // GoBGP's own counter has those before the policies
					a := p.PeerAddress.Unmap()
					c := counted[a]
					c.accepted++
					counted[a] = c
				}
				if r, ok := route(paths, internal); ok {
					out = append(out, r)
				}
			})
		if err != nil {
			return nil, fmt.Errorf("learned routes: %w", err)
		}
	}
	slices.SortFunc(out, func(a, b bgp.Route) int {
		if c := a.Prefix.Addr().Compare(b.Prefix.Addr()); c != 0 {
			return c
		}
		return a.Prefix.Bits() - b.Prefix.Bits()
	})
	s.mu.Lock()
	defer s.mu.Unlock()
	s.counts = counted
	return out, nil
}

// route returns the learned route to a destination; false if the best path is the node's own. Sessions with the internal
// peers are within an AS.
func route(paths []*apiutil.Path, internal map[netip.Addr]bool) (bgp.Route, bool) {
	var out bgp.Route
	for i, p := range paths {
		if !p.Best || p.Withdrawal || !p.PeerAddress.IsValid() || p.PeerAddress.IsUnspecified() {
			if i == 0 {
				return out, false
			}
			continue
		}
		n, ok := p.Nlri.(*gobgp.IPAddrPrefix)
		if !ok {
			return out, false
		}
		out.Prefix = n.Prefix
		if hop := nextHop(p, internal[p.PeerAddress.Unmap()]); hop.IsValid() {
			path := bgp.Path{Peer: p.PeerAddress.Unmap(), NextHop: hop, Stale: p.Stale}
			if !slices.ContainsFunc(out.Paths, func(o bgp.Path) bool { return o.NextHop == hop }) {
				out.Paths = append(out.Paths, path)
			}
		}
	}
	return out, len(out.Paths) > 0
}

// nextHop returns the next hop of a path: the peer itself if it is on a link and of another AS, or if it names no address
// that is valid elsewhere. GoBGP drops the link-local address of an announcement with two, and the other one of BIRD is
// unspecified.
func nextHop(p *apiutil.Path, internal bool) netip.Addr {
	var hop netip.Addr
	for _, a := range p.Attrs {
		switch a := a.(type) {
		case *gobgp.PathAttributeNextHop:
			hop = a.Value.Unmap()
		case *gobgp.PathAttributeMpReachNLRI:
			hop = a.Nexthop.Unmap()
		}
	}
	if p.PeerAddress.Zone() != "" && (!internal || hop.IsUnspecified() || hop.IsLinkLocalUnicast()) {
		return p.PeerAddress
	}
	return hop
}

func families() []gobgp.Family { return []gobgp.Family{gobgp.RF_IPv4_UC, gobgp.RF_IPv6_UC} }

// Peers returns the state of the sessions, sorted by address, with the counts of the last Routes.
func (s *Speaker) Peers() (out []bgp.PeerState) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range s.have.Peers {
		c := s.counts[p.Addr]
		state := bgp.PeerState{
			Name: p.Name, Addr: p.Addr, Interface: p.Interface, ASN: p.ASN, Session: cmp.Or(s.states[p.Addr], "idle"),
			Error: s.lastError[p.Addr], Received: c.received, Accepted: c.accepted, Advertised: c.advertised,
		}
		if err := s.missing[p.Interface]; err != nil {
			state.Error = err.Error()
		}
		if h := s.heard[p.Addr]; !h.at.IsZero() {
			state.Since = h.at.Unix()
		}
		out = append(out, state)
	}
	return out
}

// Synced reports whether all peers have announced their routes since the speaker started, or have had the time for it.
func (s *Speaker) Synced() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.bgp == nil {
		return false
	}
	s.synced = s.synced || s.allSynced()
	return s.synced
}

// allSynced reports whether the routes of all peers are known.
func (s *Speaker) allSynced() bool {
	now := s.now()
	for _, p := range s.have.Peers {
		h := s.heard[p.Addr]
		wait := time.Duration(p.RestartTime) * time.Second
		done := !h.since.IsZero() && (len(h.ended) >= len(familiesOf(p)) || now.Sub(h.since) > patience)
		if !done && now.Sub(s.started) < wait {
			return false
		}
	}
	return true
}
