// SPDX-License-Identifier: Apache-2.0

package tunnel

import (
	"context"
	"log/slog"
	"net/netip"
	"sync/atomic"
	"syscall"

	"github.com/weft-net/weft/internal/node/tunnel/udp"
	"github.com/weft-net/weft/internal/plan/mesh"
)

// datagrams is a tunnel of the backend udp.
type datagrams struct {
	want    mesh.Tunnel
	log     *slog.Logger
	lost    uint64 // the logged number of packets that were not sent
	refused uint64 // the logged number of packets that were refused
	path    *udp.Path
	end     context.CancelFunc
	over    chan struct{}
}

func (r *Runner) startUDP(w mesh.Tunnel, dead *atomic.Bool) (tunnel, error) {
	own, _ := netip.ParseAddr(w.Options[mesh.OptionAddress]) // none: no ICMP errors are sent
	path, err := udp.Open(udp.Config{NS: r.cfg.NS, Link: w.Link, Listen: w.Local, Own: own, Now: r.cfg.Now})
	if err != nil {
		return nil, err
	}
	d := &datagrams{want: w, path: path, log: r.cfg.Log, over: make(chan struct{})}
	ctx, end := context.WithCancel(r.ctx)
	d.end = end
	r.watch(w.Link, dead, func() error {
		defer close(d.over)
		return path.Run(ctx)
	})
	return d, nil
}

func (d *datagrams) set(_ context.Context, w mesh.Tunnel, changed bool) error {
	if s := d.path.Stats(); s.Unsent.Load() > d.lost {
		n := s.Unsent.Load()
		d.log.Warn("packets could not be sent", "interface", w.Link, "count", n-d.lost, "err", syscall.Errno(s.Errno.Load()))
		d.lost = n
	}
	if n := d.path.Stats().Refused.Load(); n > d.refused {
		d.log.Warn("packets of peers with foreign source addresses are refused", "interface", w.Link, "count", n-d.refused)
		d.refused = n
	}
	if !changed {
		return nil
	}
	if w.Local != d.want.Local || w.Options[mesh.OptionAddress] != d.want.Options[mesh.OptionAddress] {
		return errRecreate
	}
	peers := make([]udp.Peer, 0, len(w.Peers))
	for _, p := range w.Peers {
		peers = append(peers, udp.Peer{Prefix: p.CIDR, To: p.Endpoint})
	}
	var accept udp.Accept
	if s := w.Sources; s != nil {
		accept.Outside, accept.Cluster = s.Outside, s.Cluster
		for _, n := range s.Senders {
			accept.Senders = append(accept.Senders, udp.Sender(n))
		}
		for _, r := range s.Relays {
			accept.Relays = append(accept.Relays, udp.Relay(r))
		}
	}
	d.path.SetPeers(peers, accept)
	return nil
}

func (d *datagrams) close() {
	d.end()
	<-d.over
}
