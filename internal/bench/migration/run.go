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
	"github.com/weft-net/weft/internal/vm/downtime"
	"github.com/weft-net/weft/internal/vm/guestimage"
	"github.com/weft-net/weft/internal/vm/qemu"
)

// Config configures Run.
type Config struct {
	// Agent is the program weft-agent, BinDir the directory of weft-cni, Speaker the program weft-guest.
	Agent, BinDir, Speaker string
	Image                  guestimage.Image
	// Encapsulation of the cluster: vxlan, ipip, wireguard, udp or host-gw.
	Encapsulation string
	// Binding of the VM: direct or masquerade.
	Binding model.VMBinding
	// N is the number of migrations.
	N   int
	Log *slog.Logger
	// OnMigration is called after each migration; optional.
	OnMigration func(n int, g downtime.Measurement)
}

// Run measures live migrations.
func Run(ctx context.Context, cfg Config) (r Report, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	w, err := newWorld(ctx, cfg, 3)
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, w.close()) }()
	gaps, err := w.measure(ctx)
	if err != nil {
		return r, fmt.Errorf("%w%s", err, w.logTails())
	}
	return newReport(cfg, gaps), nil
}

// measure boots the VM and migrates it.
func (w *world) measure(ctx context.Context) ([]downtime.Measurement, error) {
	far, err := w.nodes[2].run(ctx, pod{namespace: "peers", name: "peer"})
	if err != nil {
		return nil, err
	}
	p := downtime.Peer{Now: time.Now}
	if err := p.Listen(ctx, far.ns, netip.AddrPortFrom(far.addr, 9000)); err != nil {
		return nil, err
	}
	first, err := w.nodes[0].run(ctx, pod{namespace: namespace, name: "db-0", vm: vmName})
	if err != nil {
		return nil, err
	}
	g, err := w.start(ctx, first, w.cfg.Binding, "")
	if err != nil {
		return nil, err
	}
	defer func() { _ = g.end(context.WithoutCancel(ctx)) }()
	flow := fmt.Sprintf("guest-tools udp %s 5ms >/dev/null 2>&1 &", netip.AddrPortFrom(far.addr, 9000))
	if err := g.awaitBoot(ctx, "guest-tools echo 7 >/dev/null 2>&1 &", "guest-tools talk 19 10ms >/dev/null 2>&1 &",
		flow); err != nil {
		return nil, err
	}
	if err := p.Echo(ctx, far.ns, netip.AddrPortFrom(first.addr, 7)); err != nil {
		return nil, err
	}
	if err := p.ReadStream(ctx, far.ns, netip.AddrPortFrom(first.addr, 19), ""); err != nil {
		return nil, err
	}
	var gaps []downtime.Measurement
	for n := range w.cfg.N {
		next, measured, err := w.migrate(ctx, g, &p, n)
		if next != nil {
			g = next
		}
		if err != nil {
			return gaps, fmt.Errorf("migration %d: %w", n+1, err)
		}
		gaps = append(gaps, measured)
		if w.cfg.OnMigration != nil {
			w.cfg.OnMigration(n, measured)
		}
	}
	return gaps, nil
}

// migrate migrates the VM to the other node and returns the VM there.
func (w *world) migrate(ctx context.Context, g *guest, p *downtime.Peer, n int) (*guest, downtime.Measurement, error) {
	if err := p.Await(ctx, time.Now()); err != nil {
		return nil, downtime.Measurement{}, err
	}
	other := w.nodes[(n+1)%2]
	target, err := other.run(ctx, pod{
		namespace: namespace, name: fmt.Sprintf("db-%d", n+1), vm: vmName, incoming: true, addr: g.pod.addr,
	})
	if err != nil {
		return nil, downtime.Measurement{}, err
	}
	if target.addr != g.pod.addr {
		return nil, downtime.Measurement{}, fmt.Errorf("the VM's address is %s, but %s on node %s", g.pod.addr,
			target.addr, other.name)
	}
	to, err := w.start(ctx, target, w.cfg.Binding, qemu.IncomingDeferred)
	if err != nil {
		return nil, downtime.Measurement{}, err
	}
	resumed, err := g.migrate(ctx, to)
	if err != nil {
		return nil, downtime.Measurement{}, errors.Join(err, to.end(ctx))
	}
	if err := p.Await(ctx, resumed); err != nil {
		return to, downtime.Measurement{}, errors.Join(err, g.end(ctx))
	}
	// The downtime of the connections is over when lines arrive regularly again.
	time.Sleep(downtime.Margin)
	return to, p.Measure(resumed), g.end(ctx)
}

// logTails returns the ends of the agents' logs.
func (w *world) logTails() string {
	out := ""
	for _, n := range w.nodes {
		out += n.logTail()
	}
	return out
}
