// SPDX-License-Identifier: Apache-2.0

// Package server serves the node's agent: it plans what the speaker does from the facts that the agent sends, and reports
// what the speaker learns.
package server

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"reflect"
	"time"

	"github.com/weft-net/weft/internal/bgp/wire"
	"github.com/weft-net/weft/internal/plan/bgp"
)

const (
	// pace is the shortest time between two reports: changes come in bursts.
	pace = 100 * time.Millisecond
	// resync is how often what is not in force is tried again. Routes are compared then only if they changed since the last
	// time: numbers of a peer's routes may be counted a moment after its event.
	resync = 5 * time.Second
	// compareAll is how often all routes are compared without a change, in case an event was lost.
	compareAll = 10 * time.Minute
	// batch is the largest number of routes of one message.
	batch = 2000
)

// Speaker is what a Server makes available.
type Speaker interface {
	// Set makes the speaker equal to a configuration; the error says what is not in force. Retry does it again.
	Set(ctx context.Context, want bgp.Speaker) error
	Retry(ctx context.Context) error
	// Routes returns the learned routes, sorted by prefix. It reads and counts all of them.
	Routes(ctx context.Context) ([]bgp.Route, error)
	// Peers returns the sessions. Synced reports whether the routes of all peers are known.
	Peers() []bgp.PeerState
	Synced() bool
	// RoutesChanged receives a token when Routes may return something else, PeersChanged when only Peers or Synced may.
	RoutesChanged() <-chan struct{}
	PeersChanged() <-chan struct{}
}

// Server serves a speaker at a unix socket.
type Server struct {
	socket  string
	speaker Speaker
	objects *objects
	log     *slog.Logger
	after   func(time.Duration) <-chan time.Time
}

// New returns a Server at the path of a socket.
func New(socket string, speaker Speaker, log *slog.Logger, after func(time.Duration) <-chan time.Time) *Server {
	return &Server{socket: socket, speaker: speaker, objects: newObjects(), log: log, after: after}
}

// Run serves until ctx ends.
func (s *Server) Run(ctx context.Context) error {
	if err := os.MkdirAll(filepath.Dir(s.socket), 0o755); err != nil {
		return fmt.Errorf("socket %s: %w", s.socket, err)
	}
	if err := os.Remove(s.socket); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("socket %s: %w", s.socket, err)
	}
	l, err := net.Listen("unix", s.socket)
	if err == nil {
		err = os.Chmod(s.socket, 0o600)
	}
	if err != nil {
		return fmt.Errorf("socket %s: %w", s.socket, err)
	}
	defer context.AfterFunc(ctx, func() { _ = l.Close() })()
	connections := make(chan net.Conn)
	failed := make(chan error, 1)
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				failed <- err
				return
			}
			select {
			case connections <- c:
			case <-ctx.Done():
				_ = c.Close()
				return
			}
		}
	}()
	var next net.Conn
	for {
		if next == nil {
			select {
			case <-ctx.Done():
				return nil
			case err := <-failed:
				return fmt.Errorf("socket %s: %w", s.socket, err)
			case next = <-connections:
			}
		}
		if next, err = s.serveUntil(ctx, next, connections); err != nil {
			s.log.Warn("agent has disconnected; sessions continue", "err", err)
		}
		if ctx.Err() != nil {
			return nil
		}
	}
}

// serveUntil serves one agent until it disconnects, or another one connects, which it returns.
func (s *Server) serveUntil(ctx context.Context, c net.Conn, others <-chan net.Conn) (next net.Conn, err error) {
	one, cancel := context.WithCancel(ctx)
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- s.serve(one, wire.NewConn(c)) }()
	select {
	case err = <-done:
		return nil, err
	case next = <-others:
	case <-ctx.Done():
	}
	cancel()
	<-done // two agents must not change the speaker at once
	return next, nil
}

// serve serves one agent.
func (s *Server) serve(ctx context.Context, c *wire.Conn) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer func() { _ = c.Close() }()
	defer context.AfterFunc(ctx, func() { _ = c.Close() })()
	requests, failed := make(chan wire.Request), make(chan error, 1)
	go func() {
		for {
			var r wire.Request
			if err := c.Receive(&r); err != nil {
				failed <- err
				return
			}
			select {
			case requests <- r:
			case <-ctx.Done():
				return
			}
		}
	}()
	out := report{conn: c, speaker: s.speaker}
	if err := out.send(ctx, true); err != nil {
		return err
	}
	again, all := s.after(resync), s.after(compareAll)
	recent := false // routes changed since the last resync
	for {
		routes := false
		select {
		case <-ctx.Done():
			return nil
		case err := <-failed:
			return err
		case r := <-requests:
			s.plan(ctx, r, &out)
			routes = true
		case <-s.speaker.RoutesChanged():
			routes = true
			if !s.wait(ctx, pace) {
				return nil
			}
		case <-s.speaker.PeersChanged():
			if !s.wait(ctx, pace) {
				return nil
			}
		case <-again:
			again = s.after(resync)
			routes, recent = recent, false
			if out.configured {
				out.set(s.speaker.Retry(ctx), s.log)
			}
			if err := out.send(ctx, routes); err != nil {
				return err
			}
			continue
		case <-all:
			all, routes = s.after(compareAll), true
		}
		recent = recent || routes
		if err := out.send(ctx, routes); err != nil {
			return err
		}
	}
}

// wait waits, and reports false if ctx ends first.
func (s *Server) wait(ctx context.Context, d time.Duration) bool {
	select {
	case <-s.after(d):
		return true
	case <-ctx.Done():
		return false
	}
}

// plan plans from the facts of an agent, and applies the plan.
func (s *Server) plan(ctx context.Context, r wire.Request, out *report) {
	if err := wire.CheckVersion(r.Version); err != nil {
		out.err = err.Error()
		return
	}
	s.objects.set(r.Objects)
	facts, secrets := s.objects.facts(r)
	want, problems, ok := bgp.Plan(facts)
	if !ok {
		out.err = fmt.Sprintf("node %s is not in the cluster", r.Self)
		return
	}
	problems = append(problems, s.objects.problems()...)
	out.plan = &wire.Plan{
		ASN: want.ASN, RouterID: want.RouterID, RestartTime: want.RestartTime, Announced: want.Announced, Problems: problems,
		Secrets: secrets,
	}
	out.set(s.speaker.Set(ctx, want), s.log)
	out.configured = true
}

// report is what was reported to an agent.
type report struct {
	conn         *wire.Conn
	plan, sent   *wire.Plan
	speaker      Speaker
	routes       map[netip.Prefix]bgp.Route // nil before the first message
	peers        []bgp.PeerState
	synced       bool
	err, sentErr string
	configured   bool
}

func (r *report) set(err error, log *slog.Logger) {
	text := ""
	if err != nil {
		text = err.Error()
	}
	if text != "" && text != r.err {
		log.Error("configuration is not in force", "err", err)
	}
	r.err = text
}

// send reports what has changed: of routes only if all of them are to be compared, or have just become complete.
func (r *report) send(ctx context.Context, all bool) error {
	synced := r.speaker.Synced() // first, so that the routes are at least as new
	whole := r.routes == nil
	if whole {
		r.routes = map[netip.Prefix]bgp.Route{}
	}
	u := wire.Update{Version: wire.Version, Whole: whole}
	flush := func() error {
		err := r.conn.Send(u)
		u = wire.Update{Version: wire.Version}
		return err
	}
	if all || whole || synced != r.synced {
		routes, err := r.speaker.Routes(ctx)
		if err != nil {
			return err
		}
		now := make(map[netip.Prefix]bool, len(routes))
		for _, route := range routes {
			now[route.Prefix] = true
			if old, ok := r.routes[route.Prefix]; ok && reflect.DeepEqual(old, route) {
				continue
			}
			r.routes[route.Prefix] = route
			if u.Routes = append(u.Routes, route); len(u.Routes) == batch {
				if err := flush(); err != nil {
					return err
				}
			}
		}
		for prefix := range r.routes {
			if !now[prefix] {
				u.Withdrawn = append(u.Withdrawn, prefix)
				delete(r.routes, prefix)
			}
		}
	}
	changed := whole || len(u.Routes)+len(u.Withdrawn) > 0 || synced != r.synced || r.err != r.sentErr
	peers := r.speaker.Peers()
	if !reflect.DeepEqual(peers, r.peers) {
		changed, r.peers = true, peers
	}
	r.synced, r.sentErr = synced, r.err
	if r.plan != r.sent {
		if r.sent == nil || !reflect.DeepEqual(r.plan, r.sent) {
			changed, u.Plan = true, r.plan
		}
		r.sent = r.plan
	}
	if !changed {
		return nil
	}
	u.Peers, u.Synced, u.Error = peers, synced, r.err
	return flush()
}
