// SPDX-License-Identifier: Apache-2.0

package flanneld

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/netip"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/weft-net/weft/internal/cluster/facts"
	"github.com/weft-net/weft/internal/failpoint"
	"github.com/weft-net/weft/internal/flannel"
	"github.com/weft-net/weft/internal/kernel"
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/netns"
	"github.com/weft-net/weft/internal/node/reconcile"
	"github.com/weft-net/weft/internal/node/tunnel"
	"github.com/weft-net/weft/internal/notify"
	"github.com/weft-net/weft/internal/plan/mesh"
)

// insistFirst and insistLongest are how long something waits that did not succeed.
const insistFirst, insistLongest = 250 * time.Millisecond, 5 * time.Second

// Config is a daemon's.
type Config struct {
	Options
	// NS is the namespace that it works in; nil is the process's own.
	NS      *netns.NS
	Getenv  func(string) string
	Env     []string // of commands
	Version string
	Log     *slog.Logger
	Now     func() time.Time
	After   func(time.Duration) <-chan time.Time
	// Random is a number below n, Entropy is where keys come from.
	Random  func(n int) int
	Entropy io.Reader
	// Ready is called when subnet.env is written and the rules are there; it may be nil.
	Ready func()
	// Step, which may be nil, is told what was just done: a test kills the process there.
	Step failpoint.Hook
}

// daemon is one that runs.
type daemon struct {
	cfg    Config
	log    *slog.Logger
	host   *kernel.Conn
	runner *tunnel.Runner
	health *health
	mesh   mesh.Config
	conf   flannel.NetConf
	mgr    manager
	rules  *rules
	// public are the node's addresses for others, where they are other ones. lost holds a token when the interface has
	// lost an address.
	public []netip.Addr
	lost   notify.Chan
}

// Run is the daemon, until ctx ends.
func Run(ctx context.Context, cfg Config) error {
	if err := cfg.Check(); err != nil {
		return err
	}
	d := &daemon{cfg: cfg, log: cfg.Log.With("room", "flanneld"), health: newHealth(), lost: notify.New()}
	stop, err := d.health.serve(ctx, cfg.HealthzIP, cfg.HealthzPort, d.log)
	if err != nil {
		return err
	}
	defer stop()
	if d.host, err = kernel.Dial(cfg.NS); err != nil {
		return err
	}
	defer func() { _ = d.host.Close() }()
	d.runner = tunnel.New(tunnel.Config{
		NS: cfg.NS, Env: cfg.Env, Random: cfg.Entropy, Log: cfg.Log, Now: cfg.Now, After: cfg.After,
	})
	defer d.runner.Close()
	return ended(ctx, d.run(ctx))
}

func (d *daemon) run(ctx context.Context) error {
	if err := d.openManager(ctx); err != nil {
		return err
	}
	if err := d.insist(ctx, "network's configuration", func() error { return d.configure(ctx) }); err != nil {
		return err
	}
	if err := d.findPublic(ctx); err != nil {
		return err
	}
	u, err := d.underlay(ctx)
	if err != nil {
		return err
	}
	d.log.Info("interface", "link", u.Link, "addrs", u.Addrs, "public", u.external())
	previous := d.previous()
	var g grant
	err = d.insist(ctx, "subnet", func() (err error) {
		g, err = d.mgr.acquire(ctx, request{conf: d.conf, underlay: u, previous: previous, published: d.published(u)})
		return err
	})
	if err != nil {
		return err
	}
	d.log.Info("subnet", "node", g.name, "subnets", g.subnets)
	_ = d.cfg.Step.At("subnet")
	return d.live(ctx, g, u)
}

func (d *daemon) openManager(ctx context.Context) error {
	if d.cfg.KubeSubnetMgr {
		k, err := d.newKubernetes(ctx)
		d.mgr = k
		return err
	}
	l, err := d.newLeases()
	d.mgr = l
	return err
}

// insist does something until it succeeds, unless it never can: the configuration is wrong.
func (d *daemon) insist(ctx context.Context, what string, f func() error) error {
	said := ""
	for wait := insistFirst; ; wait = min(2*wait, insistLongest) {
		err := f()
		var fault *model.Fault
		hopeless := errors.As(err, &fault) &&
			(fault.Code == model.CodeInvalidConf || fault.Code == model.CodeUnsupportedField || fault.Code == model.CodeDecode)
		switch {
		case err == nil:
			d.health.well(what)
			return nil
		case ctx.Err() != nil:
			return ctx.Err()
		case hopeless && d.cfg.KubeSubnetMgr && !d.health.isReady():
			return err
		case err.Error() != said: // etcd's configuration can be corrected while the daemon waits
			said = err.Error()
			d.log.Warn("waiting", "for", what, "err", err)
			d.health.ill(what, err)
		}
		select {
		case <-d.cfg.After(wait):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// configure reads the network's configuration.
func (d *daemon) configure(ctx context.Context) error {
	text, err := d.mgr.netConf(ctx)
	if err != nil {
		return err
	}
	conf, doubts, err := flannel.ParseNetConf(text)
	if err != nil {
		return err
	}
	if !d.cfg.KubeSubnetMgr {
		if _, _, err := conf.Ranges(); err != nil {
			return err
		}
	}
	for _, doubt := range doubts {
		d.log.Warn(doubt.Msg, "hint", doubt.Hint)
	}
	d.conf = conf
	d.mesh, err = d.meshConfig()
	d.log.Info("network", "networks", conf.Networks(), "backend", conf.Backend.Type)
	return err
}

// published plans what the node publishes, before it has a lease that says so.
func (d *daemon) published(
	u Underlay,
) func(context.Context, string, []netip.Prefix, *model.Published) (model.Published, error) {
	return func(ctx context.Context, name string, subnets []netip.Prefix, had *model.Published) (model.Published, error) {
		cfg := d.mesh
		var err error
		if cfg.Learned, err = d.runner.Learn(ctx, cfg); err != nil {
			return model.Published{}, err
		}
		c := &model.Cluster{Self: name, Nodes: []model.Node{u.self(name, subnets, had)}}
		answers, err := kernel.Spaces{Host: d.host}.Observe(ctx, mesh.Observe(c, cfg))
		if err != nil {
			return model.Published{}, err
		}
		t, err := mesh.Plan(c, cfg, answers)
		_ = d.cfg.Step.At("planned")
		return t.Publish, err
	}
}

// live keeps everything until ctx ends.
func (d *daemon) live(ctx context.Context, g grant, u Underlay) error {
	s := &source{Source: d.mgr, conf: d.conf, self: u.self(g.name, g.subnets, nil), moved: make(chan Underlay)}
	s.last = s.self
	if k, ok := d.mgr.(*kubernetes); ok {
		s.takeNode = k.takesPart
	}
	f := facts.New(s, g.name, d.cfg.Log, d.cfg.After)
	d.rules = newRules(d, g.subnets)
	parts, ctx := errgroup.WithContext(ctx)
	keep := func(what func(context.Context) error) { parts.Go(func() error { return ended(ctx, what(ctx)) }) }
	keep(f.Run)
	keep(d.mgr.keep)
	keep(d.rules.run)
	keep(func(ctx context.Context) error { return d.follow(ctx, u, s.moved) })
	keep(reconcile.New(reconcile.Config{
		Facts: f, Host: d.host, NS: d.cfg.NS, Mesh: d.mesh, Runner: d.runner, StatusFile: d.cfg.StatusFile,
		Passed: d.passed, Log: d.cfg.Log, Now: d.cfg.Now, After: d.cfg.After,
	}).Run)
	return parts.Wait()
}
