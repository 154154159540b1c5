// SPDX-License-Identifier: Apache-2.0

package tunnel

import (
	"context"
	"net/netip"
	"sync/atomic"

	"github.com/weft-net/weft/internal/plan/mesh"
	"github.com/weft-net/weft/internal/tunnel/udp"
)

// datagrams is a tunnel of the back end udp.
type datagrams struct {
	want mesh.Tunnel
	path *udp.Path
	end  context.CancelFunc
	over chan struct{}
}

func (r *Runner) startUDP(w mesh.Tunnel, dead *atomic.Bool) (keeper, error) {
	own, _ := netip.ParseAddr(w.Options[mesh.OptionAddress]) // none: senders are not answered
	path, err := udp.Open(udp.Config{NS: r.cfg.NS, Link: w.Link, Listen: w.Local, Own: own, Now: r.cfg.Now})
	if err != nil {
		return nil, err
	}
	d := &datagrams{want: w, path: path, over: make(chan struct{})}
	ctx, end := context.WithCancel(r.ctx)
	d.end = end
	r.watch(w.Link, dead, func() error {
		defer close(d.over)
		return path.Run(ctx)
	})
	return d, nil
}

func (d *datagrams) set(_ context.Context, w mesh.Tunnel, changed bool) error {
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
	d.path.SetPeers(peers)
	return nil
}

func (d *datagrams) close() {
	d.end()
	<-d.over
}
