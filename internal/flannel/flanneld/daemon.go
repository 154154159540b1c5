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

// retryFirst and retryMax bound the pause before a retry.
const retryFirst, retryMax = 250 * time.Millisecond, 5 * time.Second

// Config configures a daemon.
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
	// Failpoint is called after each operation, for fault tests; it may be nil.
	Failpoint failpoint.Hook
}

// daemon is a running daemon.
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
	// public are the node's external addresses, where they differ from the underlay's. lost has a token when the interface
	// has lost an address.
	public []netip.Addr
	lost   notify.Chan
}

// Run runs the daemon until ctx ends.
func Run(ctx context.Context, cfg Config) error {
	if err := cfg.Check(); err != nil {
		return err
	}
	d := &daemon{cfg: cfg, log: cfg.Log.With("component", "flanneld"), health: newHealth(), lost: notify.New()}
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
	if err := d.retry(ctx, "read the network configuration", func() error { return d.configure(ctx) }); err != nil {
		return err
	}
	if err := d.findPublic(ctx); err != nil {
		return err
	}
	u, err := d.underlay(ctx)
	if err != nil {
		return err
	}
	d.log.Info("daemon chose the interface to the other nodes", "interface", u.Link, "addresses", u.Addrs,
		"public", u.external())
	previous := d.previous()
	var g grant
	err = d.retry(ctx, "acquire a subnet", func() (err error) {
		g, err = d.mgr.acquire(ctx, request{conf: d.conf, underlay: u, previous: previous, published: d.published(u)})
		return err
	})
	if err != nil {
		return err
	}
	d.log.Info("daemon acquired a subnet", "node", g.name, "subnets", g.subnets)
	_ = d.cfg.Failpoint.At("subnet")
	return d.runAll(ctx, g, u)
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

// retry calls f until it succeeds, or fails with an invalid configuration.
func (d *daemon) retry(ctx context.Context, what string, f func() error) error {
	reported := ""
	for wait := retryFirst; ; wait = min(2*wait, retryMax) {
		err := f()
		var e *model.Error
		hopeless := errors.As(err, &e) &&
			(e.Code == model.CodeInvalidConf || e.Code == model.CodeUnsupportedField || e.Code == model.CodeDecode)
		switch {
		case err == nil:
			d.health.clearProblem(what)
			return nil
		case ctx.Err() != nil:
			return ctx.Err()
		case hopeless && d.cfg.KubeSubnetMgr && !d.health.isReady():
			return err
		case err.Error() != reported: // etcd's configuration can be corrected while the daemon waits
			reported = err.Error()
			d.log.Warn("daemon could not continue; it retries", "task", what, "err", err)
			d.health.setProblem(what, err)
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
	conf, warnings, err := flannel.ParseNetConf(text)
	if err != nil {
		return err
	}
	if !d.cfg.KubeSubnetMgr {
		if _, _, err := conf.Ranges(); err != nil {
			return err
		}
	}
	for _, warning := range warnings {
		d.log.Warn("network configuration has a warning", "warning", warning.Msg, "hint", warning.Hint)
	}
	d.conf = conf
	d.mesh, err = d.meshConfig()
	d.log.Info("daemon read the network configuration", "networks", conf.Networks(), "backend", conf.Backend.Type)
	return err
}

// published returns what the node publishes, before it has a lease.
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
		_ = d.cfg.Failpoint.At("planned")
		return t.Publish, err
	}
}

// runAll runs all parts until ctx ends.
func (d *daemon) runAll(ctx context.Context, g grant, u Underlay) error {
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
	keep(func(ctx context.Context) error { return d.followAddresses(ctx, u, s.moved) })
	keep(reconcile.New(reconcile.Config{
		Facts: f, Host: d.host, NS: d.cfg.NS, Mesh: d.mesh, Runner: d.runner, StatusFile: d.cfg.StatusFile,
		Passed: d.afterPass, Log: d.cfg.Log, Now: d.cfg.Now, After: d.cfg.After,
	}).Run)
	return parts.Wait()
}
