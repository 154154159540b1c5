// SPDX-License-Identifier: Apache-2.0

// Package peermetrics follows how a node reaches its peers, for the metrics. It sends at most one packet a second: in a
// large cluster a peer's turn comes seldom, but a node never costs the network more.
package peermetrics

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/weft-net/weft/internal/kernel/wireguard"
	"github.com/weft-net/weft/internal/netns"
	"github.com/weft-net/weft/internal/node/metrics"
	"github.com/weft-net/weft/internal/node/probe"
	"github.com/weft-net/weft/internal/plan/mesh"
)

const (
	// period is the time between two packets.
	period = time.Second
	// patience is how long an answer may take.
	patience = 900 * time.Millisecond
	// lossesUntilDown is how many packets in a row must be lost until a peer counts as down: a single one may be.
	lossesUntilDown = 2
	// largeEvery is how many visits of a peer pass between two packets of the pods' MTU.
	largeEvery = 5
	// Few is the number of peers up to which each has metrics of its own, unless all of them shall.
	Few = 100
)

// Config configures Peers.
type Config struct {
	// Namespace is the node's; nil: that of the process.
	Namespace *netns.NS
	// Topology returns the current plan of the mesh.
	Topology func() (mesh.Topology, error)
	// Counted returns what a WireGuard device of the kernel has exchanged with each peer.
	Counted func(link string) (map[wireguard.PublicKey]wireguard.Traffic, error)
	// All: also in large clusters each peer has metrics of its own.
	All   bool
	Log   *slog.Logger
	After func(time.Duration) <-chan time.Time
}

// Peers follows the peers.
type Peers struct {
	cfg Config

	mu     sync.Mutex
	states map[string]*state // by peer
	known  int               // peers of the mesh, also those without a path
	// devices are the kernel's devices that count for each peer.
	devices []mesh.Tunnel
}

// state is what is known of the path to a peer.
type state struct {
	target probe.Target
	visits int
	// asked: the peer has answered, or counts as down.
	asked, up bool
	losses    int
	rtt       time.Duration
	// passes is the largest size in bytes known to pass, fails the smallest larger one known not to; 0: none.
	passes, fails int
}

// New returns the Peers, and registers their metrics.
func New(cfg Config, m *metrics.Metrics) *Peers {
	p := &Peers{cfg: cfg, states: map[string]*state{}}
	m.Gauge("weft_peers", "Nodes that this node's pods are to reach.", func() float64 {
		p.mu.Lock()
		defer p.mu.Unlock()
		return float64(p.known)
	})
	m.Gauge("weft_peers_down", "Peers from which the last two packets had no answer, or to which there is no path.", p.down)
	m.Gauge("weft_peers_narrow", "Peers that are up and that packets of the pods' MTU do not reach.", p.narrow)
	m.Gauge("weft_peer_rtt_worst_seconds", "The longest round trip time to a peer that is up, in seconds.", func() float64 {
		worst, _ := p.times()
		return worst
	})
	m.Gauge("weft_peer_rtt_sum_seconds", "The sum of the round trip times to all peers that are up, in seconds.", func() float64 {
		_, sum := p.times()
		return sum
	})
	m.Gauges("weft_peer_up", "1 if the peer answers through the mesh, otherwise 0; at most 100 peers, unless metrics.peers is all.",
		"peer", p.each(func(s state) (float64, bool) {
			if s.up {
				return 1, true
			}
			return 0, true
		}))
	m.Gauges("weft_peer_rtt_seconds", "Round trip time to the peer through the mesh, in seconds.", "peer",
		p.each(func(s state) (float64, bool) { return s.rtt.Seconds(), s.up }))
	m.Gauges("weft_peer_path_mtu_bytes", "Size of the largest packet that reaches the peer through the mesh, in bytes, up to the MTU of pods.",
		"peer", p.each(func(s state) (float64, bool) { return float64(s.passes), s.up && s.passes > probe.Small }))
	m.Counters("weft_peer_receive_bytes_total", "Bytes received from the peer, as the kernel's WireGuard device counts them; with other backends there is none.",
		"peer", p.traffic(func(t wireguard.Traffic) int64 { return t.Received }))
	m.Counters("weft_peer_transmit_bytes_total", "Bytes sent to the peer, as the kernel's WireGuard device counts them; with other backends there is none.",
		"peer", p.traffic(func(t wireguard.Traffic) int64 { return t.Sent }))
	return p
}

// Run sends a packet each second until ctx ends.
func (p *Peers) Run(ctx context.Context) error {
	var turns []string
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-p.cfg.After(period):
		}
		if len(turns) == 0 {
			turns = p.begin()
		}
		if len(turns) == 0 {
			continue
		}
		if again := p.visit(ctx, turns[0]); !again {
			turns = turns[1:]
		}
	}
}

// begin begins a round: it returns the peers to visit, and forgets those that are gone.
func (p *Peers) begin() []string {
	topology, err := p.cfg.Topology()
	if err != nil {
		p.cfg.Log.Debug("peers are not probed: the mesh is not known", "err", err)
		return nil
	}
	targets, _, err := probe.Targets(topology, nil)
	if err != nil {
		p.cfg.Log.Warn("peers are not probed", "err", err)
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.known = len(topology.Peers)
	p.devices = slices.DeleteFunc(slices.Clone(topology.Tunnels), func(t mesh.Tunnel) bool {
		return t.Backend != "wireguard" || t.Options[mesh.OptionUserSpace] != ""
	})
	next := map[string]*state{}
	var turns []string
	for _, t := range targets {
		if next[t.Name] != nil {
			continue // the first path of a peer stands for it
		}
		s := p.states[t.Name]
		if s == nil || s.target.Overlay != t.Overlay || s.target.OverlayMTU != t.OverlayMTU {
			s = &state{}
		}
		s.target = t
		next[t.Name] = s
		turns = append(turns, t.Name)
	}
	p.states = next
	return turns
}

// visit sends one packet to a peer; again: it was lost, and the next one is for the same peer.
func (p *Peers) visit(ctx context.Context, name string) (again bool) {
	p.mu.Lock()
	s := p.states[name]
	target, size := s.target, s.nextSize()
	p.mu.Unlock()
	took, err := target.Once(ctx, p.cfg.Namespace, size, patience)
	if ctx.Err() != nil {
		return false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	s.visits++
	if size > probe.Small {
		s.tried(size, err == nil)
		return false
	}
	if err == nil {
		s.asked, s.up, s.losses, s.rtt = true, true, 0, took
		s.passes = max(s.passes, probe.Small)
		return false
	}
	s.losses++
	if s.losses >= lossesUntilDown {
		s.asked, s.up, s.passes, s.fails = true, false, 0, 0
	}
	return s.losses < lossesUntilDown
}

// nextSize returns the size of the next packet: usually a small one; now and then one of the pods' MTU, and if that does
// not pass, one between those that are known to pass and not to.
func (s *state) nextSize() int {
	if !s.up || s.losses > 0 || s.visits%largeEvery != 1 {
		return probe.Small
	}
	if s.fails > s.passes+1 {
		return (s.passes + s.fails) / 2
	}
	return s.target.OverlayMTU
}

// tried notes whether a packet larger than the small ones passed.
func (s *state) tried(size int, passed bool) {
	switch {
	case passed:
		s.passes = size
		if s.fails <= size {
			s.fails = 0
		}
	case size <= s.passes: // it passed before
		s.passes, s.fails = probe.Small, size
	default:
		s.fails = size
	}
}

// down counts the peers that are down, and those without a path.
func (p *Peers) down() float64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := p.known - len(p.states)
	for _, s := range p.states {
		if s.asked && !s.up {
			n++
		}
	}
	return float64(n)
}

// narrow counts the peers that only smaller packets reach.
func (p *Peers) narrow() float64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := 0
	for _, s := range p.states {
		if s.up && s.fails > 0 {
			n++
		}
	}
	return float64(n)
}

// times returns the longest and the sum of all round trip times in seconds.
func (p *Peers) times() (worst, sum float64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, s := range p.states {
		if s.up {
			worst, sum = max(worst, s.rtt.Seconds()), sum+s.rtt.Seconds()
		}
	}
	return worst, sum
}

// traffic returns one direction's bytes by peer, none in a large cluster. They are read at each scrape: a round may be
// long.
func (p *Peers) traffic(direction func(wireguard.Traffic) int64) func() map[string]float64 {
	return func() map[string]float64 {
		p.mu.Lock()
		devices, many := p.devices, !p.cfg.All && p.known > Few
		p.mu.Unlock()
		out := map[string]float64{}
		if many {
			return out
		}
		for _, d := range devices {
			counted, err := p.cfg.Counted(d.Link)
			if err != nil {
				p.cfg.Log.Debug("the bytes of peers are not known", "err", err)
				return nil // a part of the sum would look like a counter that was reset
			}
			nodes := map[wireguard.PublicKey]string{} // a peer is there once for each of its prefixes
			for _, peer := range d.Peers {
				if key, err := wireguard.ParseKey(peer.PublicKey); err == nil {
					nodes[key] = peer.Node
				}
			}
			for key, node := range nodes {
				if t, is := counted[key]; is {
					out[node] += float64(direction(t))
				}
			}
		}
		return out
	}
}

// each returns the values of one metric by peer, none in a large cluster; false: the peer has none.
func (p *Peers) each(value func(state) (float64, bool)) func() map[string]float64 {
	return func() map[string]float64 {
		p.mu.Lock()
		defer p.mu.Unlock()
		out := map[string]float64{}
		if !p.cfg.All && len(p.states) > Few {
			return out
		}
		for name, s := range p.states {
			if v, has := value(*s); has && s.asked {
				out[name] = v
			}
		}
		return out
	}
}
