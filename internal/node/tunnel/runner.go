// SPDX-License-Identifier: Apache-2.0

package tunnel

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weft-net/weft/internal/netns"
	"github.com/weft-net/weft/internal/notify"
	"github.com/weft-net/weft/internal/plan/mesh"
)

const (
	// A tunnel that dies within young is reported after rest: otherwise a permanent fault would cause one pass after the
	// other.
	young = time.Second
	rest  = 250 * time.Millisecond
)

// Config configures a Runner.
type Config struct {
	// NS is the namespace of the devices; nil is the process's own.
	NS *netns.NS
	// Env is the environment of commands.
	Env []string
	// CommandTime limits the run of a command; 0 is DefaultCommandTime.
	CommandTime time.Duration
	// Forwarder runs the tunnels that forward packets in user space; nil is this process.
	Forwarder Forwarder
	// Random is the source of keys.
	Random io.Reader
	Log    *slog.Logger
	Now    func() time.Time
	After  func(time.Duration) <-chan time.Time
}

// Forwarder runs tunnels in another process, which outlives this one (package process).
type Forwarder interface {
	// Keep is the Runner's, for those tunnels.
	Keep(ctx context.Context, wanted []mesh.Tunnel) error
	// Changed receives a token when a tunnel has died.
	Changed() <-chan struct{}
}

// Runner runs tunnels.
type Runner struct {
	cfg     Config
	changed notify.Chan
	ctx     context.Context // the context of all tunnels
	end     context.CancelFunc
	parts   sync.WaitGroup
	running map[string]*running // by link
	learned learned
}

// tunnel is one running tunnel.
type tunnel interface {
	// set changes the tunnel to the wanted one. It returns errRecreate if it must be re-created. changed reports whether
	// the wanted one differs from the last one.
	set(ctx context.Context, t mesh.Tunnel, changed bool) error
	// close stops it and waits for its end.
	close()
}

var errRecreate = errors.New("tunnel must be re-created")

// running is a tunnel and its last wanted state.
type running struct {
	tunnel
	want mesh.Tunnel
	// failed reports that the last set failed.
	failed bool
	dead   *atomic.Bool
}

// New returns a Runner. Close ends everything that it runs.
func New(cfg Config) *Runner {
	if cfg.CommandTime == 0 {
		cfg.CommandTime = DefaultCommandTime
	}
	cfg.Log = cfg.Log.With("component", "tunnel")
	r := &Runner{cfg: cfg, changed: notify.New(), running: map[string]*running{}}
	r.ctx, r.end = context.WithCancel(context.Background())
	if cfg.Forwarder != nil {
		r.parts.Go(r.relay)
	}
	return r
}

// relay passes the Forwarder's notifications on.
func (r *Runner) relay() {
	for {
		select {
		case <-r.cfg.Forwarder.Changed():
			r.changed.Notify()
		case <-r.ctx.Done():
			return
		}
	}
}

// Changed receives a token when a tunnel has died.
func (r *Runner) Changed() <-chan struct{} { return r.changed }

// Running returns the number of tunnels in this process.
func (r *Runner) Running() int { return len(r.running) }

// Reload makes the next Keep configure all tunnels again: keys in files may have changed.
func (r *Runner) Reload() {
	for _, t := range r.running {
		t.failed = true
	}
}

// Close ends all tunnels, except the Forwarder's. The devices remain, and drop packets to peers.
func (r *Runner) Close() {
	r.end()
	for link, t := range r.running {
		t.close()
		delete(r.running, link)
	}
	r.parts.Wait()
}

// Keep starts, changes and stops tunnels so that the wanted ones run. An error affects one tunnel only.
func (r *Runner) Keep(ctx context.Context, wanted []mesh.Tunnel) error {
	var forwarded []mesh.Tunnel
	if r.cfg.Forwarder != nil {
		var here []mesh.Tunnel
		for _, w := range wanted {
			if inUserSpace(w) {
				forwarded = append(forwarded, w)
			} else {
				here = append(here, w)
			}
		}
		wanted = here
	}
	for link, t := range r.running {
		if !slices.ContainsFunc(wanted, func(w mesh.Tunnel) bool { return w.Link == link }) {
			r.stop(t)
		}
	}
	var errs []error
	if r.cfg.Forwarder != nil {
		errs = append(errs, r.cfg.Forwarder.Keep(ctx, forwarded))
	}
	for _, w := range wanted {
		if err := r.keep(ctx, w); err != nil {
			errs = append(errs, fmt.Errorf("%s %s: %w", w.Backend, w.Link, err))
		}
	}
	return errors.Join(errs...)
}

// inUserSpace reports whether a tunnel's packets pass through a process.
func inUserSpace(w mesh.Tunnel) bool {
	return w.Backend == "udp" || w.Backend == "wireguard" && w.Options[mesh.OptionUserSpace] != ""
}

func (r *Runner) stop(t *running) {
	t.close()
	delete(r.running, t.want.Link)
	r.cfg.Log.Info("tunnel is stopped", "backend", t.want.Backend, "interface", t.want.Link)
}

func (r *Runner) keep(ctx context.Context, w mesh.Tunnel) error {
	t := r.running[w.Link]
	if t != nil && (t.dead.Load() || t.want.Backend != w.Backend) {
		r.stop(t)
		t = nil
	}
	if t != nil {
		changed := t.failed || !same(t.want, w)
		err := t.set(ctx, w, changed)
		if !errors.Is(err, errRecreate) {
			t.want, t.failed = w, err != nil
			return err
		}
		r.stop(t)
	}
	t = &running{want: w, dead: &atomic.Bool{}}
	var err error
	if t.tunnel, err = r.start(w, t.dead); err != nil {
		return err
	}
	r.running[w.Link] = t
	r.cfg.Log.Info("tunnel is running", "backend", w.Backend, "interface", w.Link)
	err = t.set(ctx, w, true)
	t.failed = err != nil
	return err
}

// start creates a tunnel without peers.
func (r *Runner) start(w mesh.Tunnel, dead *atomic.Bool) (tunnel, error) {
	switch w.Backend {
	case "udp":
		return r.startUDP(w, dead)
	case "wireguard":
		return r.startWireguard(w, dead)
	case "extension":
		return r.startExtension(w), nil
	}
	return nil, fmt.Errorf("backend %q is unknown", w.Backend)
}

// watch runs a tunnel's work until it ends, and requests a pass if it was not stopped.
func (r *Runner) watch(link string, dead *atomic.Bool, work func() error) {
	r.parts.Go(func() {
		began := r.cfg.Now()
		err := work()
		if err == nil || r.ctx.Err() != nil {
			return
		}
		r.cfg.Log.Warn("tunnel died", "interface", link, "err", err)
		if r.cfg.Now().Sub(began) < young {
			select {
			case <-r.cfg.After(rest):
			case <-r.ctx.Done():
			}
		}
		dead.Store(true)
		r.changed.Notify()
	})
}

// same reports whether tunnels are equal.
func same(a, b mesh.Tunnel) bool { return sameBase(a, b) && samePeers(a.Peers, b.Peers) }

// sameBase compares all but the peers.
func sameBase(a, b mesh.Tunnel) bool {
	return a.Backend == b.Backend && a.Link == b.Link && a.Local == b.Local && a.MTU == b.MTU && a.KeyFile == b.KeyFile &&
		a.PSKFile == b.PSKFile && maps.Equal(a.Options, b.Options) && sameSources(a.Sources, b.Sources)
}

func sameSources(a, b *mesh.Sources) bool {
	if a == nil || b == nil {
		return a == b
	}
	return slices.Equal(a.Relays, b.Relays) && slices.Equal(a.Outside, b.Outside) && slices.Equal(a.Cluster, b.Cluster) &&
		slices.EqualFunc(a.Senders, b.Senders, func(n, o mesh.Sender) bool {
			return slices.Equal(n.Addrs, o.Addrs) && slices.Equal(n.Prefixes, o.Prefixes)
		})
}

func samePeers(a, b []mesh.TunnelPeer) bool {
	return slices.EqualFunc(a, b, func(p, q mesh.TunnelPeer) bool {
		return p.Node == q.Node && p.CIDR == q.CIDR && p.Endpoint == q.Endpoint && p.PublicKey == q.PublicKey &&
			slices.Equal(p.Further, q.Further) &&
			maps.Equal(p.Options, q.Options)
	})
}
