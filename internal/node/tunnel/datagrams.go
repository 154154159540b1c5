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

// datagrams is a tunnel of the back end udp.
type datagrams struct {
	want    mesh.Tunnel
	log     *slog.Logger
	lost    uint64 // packets that were not sent, as was told
	refused uint64 // packets that were refused, as was told
	path    *udp.Path
	end     context.CancelFunc
	over    chan struct{}
}

func (r *Runner) startUDP(w mesh.Tunnel, dead *atomic.Bool) (keeper, error) {
	own, _ := netip.ParseAddr(w.Options[mesh.OptionAddress]) // none: senders are not answered
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
		d.log.Warn("packets were not sent", "link", w.Link, "count", n-d.lost, "last", syscall.Errno(s.Errno.Load()))
		d.lost = n
	}
	if n := d.path.Stats().Refused.Load(); n > d.refused {
		d.log.Warn("packets of peers came in others' names and were refused", "link", w.Link, "count", n-d.refused)
		d.refused = n
	}
	if !changed {
		return nil
	}
	if w.Local != d.want.Local || w.Options[mesh.OptionAddress] != d.want.Options[mesh.OptionAddress] {
		return errAnew
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
