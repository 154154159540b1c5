// SPDX-License-Identifier: Apache-2.0

package migration

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"time"

	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/vm/gap"
	"github.com/weft-net/weft/internal/vm/guestimage"
	"github.com/weft-net/weft/internal/vm/qemu"
)

// Config is what is measured.
type Config struct {
	// Agent is weft-agent, BinDir where weft-cni is, Speaker weft-guest.
	Agent, BinDir, Speaker string
	Image                  guestimage.Image
	// Encapsulation is the cluster's: vxlan, ipip, wireguard, udp or host-gw.
	Encapsulation string
	// Binding is the machine's: direct or masquerade.
	Binding model.VMBinding
	// N is how many migrations there are.
	N   int
	Log *slog.Logger
	// Went, which may be nil, is told of each migration.
	Went func(n int, g gap.Gap)
}

// Run measures.
func Run(ctx context.Context, cfg Config) (r Report, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	w, err := newWorld(ctx, cfg)
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, w.close()) }()
	gaps, err := w.measure(ctx)
	if err != nil {
		return r, fmt.Errorf("%w%s", err, w.complaints())
	}
	return newReport(cfg, gaps), nil
}

// measure boots the machine and has it migrate.
func (w *world) measure(ctx context.Context) ([]gap.Gap, error) {
	far, err := w.nodes[2].run(ctx, pod{namespace: "peers", name: "peer"})
	if err != nil {
		return nil, err
	}
	p := gap.Peer{Now: time.Now}
	if err := p.Listen(ctx, far.ns, netip.AddrPortFrom(far.addr, 9000)); err != nil {
		return nil, err
	}
	first, err := w.nodes[0].run(ctx, pod{namespace: namespace, name: "db-0", machine: true})
	if err != nil {
		return nil, err
	}
	g, err := w.start(ctx, first, "")
	if err != nil {
		return nil, err
	}
	defer func() { _ = g.end(context.WithoutCancel(ctx)) }()
	flow := fmt.Sprintf("guest-tools udp %s 5ms >/dev/null 2>&1 &", netip.AddrPortFrom(far.addr, 9000))
	if err := g.boots(ctx, "guest-tools echo 7 >/dev/null 2>&1 &", "guest-tools talk 19 10ms >/dev/null 2>&1 &",
		flow); err != nil {
		return nil, err
	}
	if err := p.Talk(ctx, far.ns, netip.AddrPortFrom(first.addr, 7)); err != nil {
		return nil, err
	}
	if err := p.Hear(ctx, far.ns, netip.AddrPortFrom(first.addr, 19), ""); err != nil {
		return nil, err
	}
	var gaps []gap.Gap
	for n := range w.cfg.N {
		next, went, err := w.migrate(ctx, g, &p, n)
		if next != nil {
			g = next
		}
		if err != nil {
			return gaps, fmt.Errorf("migration %d: %w", n+1, err)
		}
		gaps = append(gaps, went)
		if w.cfg.Went != nil {
			w.cfg.Went(n, went)
		}
	}
	return gaps, nil
}

// migrate has the machine go to the other node. It gives the machine there, where it runs by then.
func (w *world) migrate(ctx context.Context, g *guest, p *gap.Peer, n int) (*guest, gap.Gap, error) {
	if err := p.Await(ctx, time.Now()); err != nil {
		return nil, gap.Gap{}, err
	}
	other := w.nodes[(n+1)%2]
	target, err := other.run(ctx, pod{
		namespace: namespace, name: fmt.Sprintf("db-%d", n+1), machine: true, incoming: true, addr: g.pod.addr,
	})
	if err != nil {
		return nil, gap.Gap{}, err
	}
	if target.addr != g.pod.addr {
		return nil, gap.Gap{}, fmt.Errorf("the machine has %s, and %s on node %s", g.pod.addr, target.addr, other.name)
	}
	to, err := w.start(ctx, target, qemu.Deferred)
	if err != nil {
		return nil, gap.Gap{}, err
	}
	resumed, err := g.migrate(ctx, to)
	if err != nil {
		return nil, gap.Gap{}, errors.Join(err, to.end(ctx))
	}
	if err := p.Await(ctx, resumed); err != nil {
		return to, gap.Gap{}, errors.Join(err, g.end(ctx))
	}
	// The connection's gap is over when lines come in time again.
	time.Sleep(gap.Around)
	return to, p.Around(resumed), g.end(ctx)
}

// complaints are the agents' last words.
func (w *world) complaints() string {
	out := ""
	for _, n := range w.nodes {
		out += n.said()
	}
	return out
}
