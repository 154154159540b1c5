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
	"github.com/weft-net/weft/internal/vm/guestimage"
)

// Config is what is measured.
type Config struct {
	// Self is this program, BinDir where weft-cni is, Speaker weft-guest.
	Self, BinDir, Speaker string
	Image                 guestimage.Image
	// Encapsulation is that of the pods' pool: vxlan, ipip or none.
	Encapsulation string
	// Binding is the machine's: direct or masquerade.
	Binding model.VMBinding
	// N is how many migrations there are.
	N   int
	Log *slog.Logger
	// Went, which may be nil, is told of each migration.
	Went func(n int, g Gap)
}

// Gap is one migration.
type Gap struct {
	// First is from the machine's going on to its first packet at the peer, Blackout from the last one before to that. Answers is
	// the longest time between two answers on one connection, Stream that between two lines on another, on which only the machine
	// speaks.
	First, Blackout, Answers, Stream time.Duration
	// Lost are packets that the machine has sent and that did not come.
	Lost int
}

// around is what counts as before a migration.
const around = 200 * time.Millisecond

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
func (w *world) measure(ctx context.Context) ([]Gap, error) {
	far, err := w.nodes[2].run(ctx, pod{namespace: "peers", name: "peer"})
	if err != nil {
		return nil, err
	}
	var p peer
	if err := p.listen(ctx, far.ns, netip.AddrPortFrom(far.addr, 9000)); err != nil {
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
	if err := g.boots(ctx, "guest-tools echo 7 >/dev/null 2>&1 &", "guest-tools talk 19 10ms >/dev/null 2>&1 &", flow); err != nil {
		return nil, err
	}
	if err := p.talk(ctx, far.ns, netip.AddrPortFrom(first.addr, 7)); err != nil {
		return nil, err
	}
	if err := p.hear(ctx, far.ns, netip.AddrPortFrom(first.addr, 19)); err != nil {
		return nil, err
	}
	var gaps []Gap
	for n := range w.cfg.N {
		next, gap, err := w.migrate(ctx, g, &p, n)
		if next != nil {
			g = next
		}
		if err != nil {
			return gaps, fmt.Errorf("migration %d: %w", n+1, err)
		}
		gaps = append(gaps, gap)
		if w.cfg.Went != nil {
			w.cfg.Went(n, gap)
		}
	}
	return gaps, nil
}

// migrate has the machine go to the other node. It gives the machine there, where it runs by then.
func (w *world) migrate(ctx context.Context, g *guest, p *peer, n int) (*guest, Gap, error) {
	if err := w.flows(ctx, p, time.Now()); err != nil {
		return nil, Gap{}, err
	}
	other := w.nodes[(n+1)%2]
	target, err := other.run(ctx, pod{namespace: namespace, name: fmt.Sprintf("db-%d", n+1), machine: true, incoming: true})
	if err != nil {
		return nil, Gap{}, err
	}
	if target.addr != g.pod.addr {
		return nil, Gap{}, fmt.Errorf("the machine has %s, and %s on node %s", g.pod.addr, target.addr, other.name)
	}
	uri := "unix:" + w.path("state-"+target.name)
	to, err := w.start(ctx, target, uri)
	if err != nil {
		return nil, Gap{}, err
	}
	resumed, err := g.migrate(ctx, to, uri)
	if err != nil {
		return nil, Gap{}, errors.Join(err, to.end(ctx))
	}
	if err := w.flows(ctx, p, resumed); err != nil {
		return to, Gap{}, errors.Join(err, g.end(ctx))
	}
	// The connection's gap is over when lines come in time again.
	time.Sleep(around)
	return to, p.around(resumed, around), g.end(ctx)
}

// flows waits until packets and lines have arrived since a time, a few of each.
func (w *world) flows(ctx context.Context, p *peer, since time.Time) error {
	const few = 20
	var failed error
	err := until(ctx, "packets and lines of the machine", func() bool {
		var least int
		least, failed = p.since(since)
		return failed != nil || least >= few
	})
	return errors.Join(failed, err)
}

// complaints are the agents' last words.
func (w *world) complaints() string {
	out := ""
	for _, n := range w.nodes {
		out += n.said()
	}
	return out
}
