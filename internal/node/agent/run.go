// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/weft-net/weft/internal/cluster/config"
	"github.com/weft-net/weft/internal/cluster/store/kube"
	"github.com/weft-net/weft/internal/endpoint/attach"
	"github.com/weft-net/weft/internal/node/advertise"
	"github.com/weft-net/weft/internal/node/clusterpools"
	"github.com/weft-net/weft/internal/node/cniconf"
	"github.com/weft-net/weft/internal/node/gc"
	"github.com/weft-net/weft/internal/node/loglevel"
	"github.com/weft-net/weft/internal/node/metrics"
	"github.com/weft-net/weft/internal/node/unenforced"
)

// drainLimit is how long the clean-up behind the last DELs may take when the agent stops; Recover does what is left.
const drainLimit = 5 * time.Second

// group are the parts that run, until their context ends.
type group struct {
	*errgroup.Group
	ctx context.Context
}

// add starts a part. That it ended because it was told to is no error.
func (g group) add(run func(ctx context.Context) error) {
	g.Go(func() error { return ended(g.ctx, run(g.ctx)) })
}

// run starts the parts and stops them in the reverse order.
func (a *agent) run(ctx context.Context) error {
	behind, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	parts, behind := errgroup.WithContext(behind)
	g := group{parts, behind}
	g.add(a.own.reaper.Run)
	a.recover(ctx)
	a.enforcement.adopt(a.attachments.machines.Has)
	a.attachments.guests.Start(behind)
	defer a.attachments.guests.Wait()
	parts.Go(func() error {
		defer stop()
		serving, cancel := context.WithCancel(ctx)
		defer cancel()
		defer context.AfterFunc(behind, cancel)() // another part failed
		return errors.Join(a.server.Run(serving), a.drain(context.WithoutCancel(ctx)))
	})
	g.add(a.admin)
	g.add(func(ctx context.Context) error {
		return a.attachments.attacher.Reconcile(ctx, attach.Reconciling{After: a.cfg.After, Quiet: a.enforcement.quiet()})
	})
	a.runAddresses(g)
	a.runAround(g)
	g.add(func(ctx context.Context) error { return a.enforcement.run(ctx, a.attachments.machines.Has) })
	if a.attachments.mover != nil {
		g.add(a.attachments.mover.Run)
	}
	a.runMesh(g)
	if a.data.kube != nil {
		g.add(a.data.kube.Run)
		g.add(func(ctx context.Context) error { return awaitServer(ctx, a.data.kube, a.data.apart(), a.cfg) })
	}
	return parts.Wait()
}

// recover undoes what a killed agent left.
func (a *agent) recover(ctx context.Context) {
	if err := a.attachments.machines.Load(ctx); err != nil {
		a.cfg.Log.Error("machines of an agent before this one", "err", err)
	}
	report, err := a.attachments.attacher.Recover(ctx)
	if err != nil {
		a.cfg.Log.Error("recovery is incomplete", "err", err)
	}
	a.cfg.Log.Info("recovered", "report", report.String())
	for _, problem := range report.Problems {
		a.cfg.Log.Error("recovery", "err", problem)
	}
	if err := a.attachments.machines.Serve(ctx); err != nil {
		a.cfg.Log.Error("machines of an agent before this one", "err", err)
	}
}

// runAddresses starts what looks after addresses.
func (a *agent) runAddresses(g group) {
	if a.blocks == nil {
		return
	}
	cfg, d := a.cfg, &a.data
	pools := clusterpools.New(clusterpools.Config{
		Node: a.self.member, StateDir: cfg.StateDir, Network: cfg.Network, Objects: d.Objects(), Facts: d.facts,
		Apart:  d.apart(),
		Needed: a.addresses.Pooled, FollowCalico: a.addresses.ServesCluster, Metrics: a.told.metrics, Log: cfg.Log,
		Now: cfg.Now, After: cfg.After,
	})
	g.add(a.addresses.Run)
	g.add(a.addresses.Audit)
	g.add(pools.Run)
	if a.tunnels != nil {
		g.add(a.tunnels.Run)
		g.add(pools.MakePools)
	}
	if a.enforcement.adopted != nil {
		g.add(a.enforcement.adopted.Run)
	}
}

// runMesh starts what keeps the way to the other nodes. Hosts that share an etcd have networks of their own, unless
// weft's is asked for.
func (a *agent) runMesh(g group) {
	cfg, d := a.cfg, &a.data
	switch {
	case d.objectStore != nil && (d.etcd == nil || placing(a.cfg)):
		g.add(d.facts.Run)
		g.add(a.overlay.Run)
	case a.overlay.Left():
		g.add(a.overlay.Clear)
	}
	if d.etcd != nil {
		g.add(func(ctx context.Context) error {
			return advertise.Register(ctx, d.Objects(), cfg.Node, cfg.Log, cfg.After)
		})
	}
	if d.facts == nil {
		return
	}
	if len(cfg.Network.PodAddresses) > 0 {
		g.add(a.attachments.advertised.Run)
	}
	if cfg.Network.Mode == config.ModeFlannel || a.self.settings.Publishes() || a.self.settings.PublishesVtep() {
		g.add(advertise.NewNode(advertise.NodeConfig{
			Node: a.self.member, Mode: cfg.Network.Mode, Flannel: cfg.Flannel, Settings: a.self.settings, Mesh: a.overlay,
			Kubernetes: d.kube, Directory: d.dir,
			Log: cfg.Log, After: cfg.After,
		}).Run)
	}
}

// runAround starts what is not needed to answer calls.
func (a *agent) runAround(g group) {
	cfg, d := a.cfg, &a.data
	if a.told.web != nil {
		server := &metrics.Server{
			Metrics: a.told.metrics, Ready: func() error { return a.told.servesPods(a.own.ledger) }, Alive: a.own.alive,
			Level: cfg.Level, Attachments: a.attachments.inspector.List, Addresses: a.addresses.Allocations,
			Log: cfg.Log.With("room", "metrics"),
		}
		g.add(func(ctx context.Context) error { return server.Run(ctx, a.told.web) })
	}
	if cfg.Runtime.Endpoint != "" {
		g.add(gc.New(gc.Config{
			Endpoint: cfg.Runtime.Endpoint, Interval: time.Duration(cfg.Runtime.GCInterval), PodUID: cfg.PodUID,
			Records:     a.own.ledger,
			Attachments: a.attachments.attacher, Metrics: a.told.metrics, Log: cfg.Log, Now: cfg.Now, After: cfg.After,
		}).Run)
	}
	if a.enforcement.policy != nil {
		g.add(func(ctx context.Context) error {
			return unenforced.Watch(ctx, d.Objects(), cfg.StateDir, cfg.Log, cfg.After)
		})
	}
	if cfg.File != "" && cfg.Level != nil {
		g.add(func(ctx context.Context) error { return loglevel.Follow(ctx, cfg.File, cfg.Level, cfg.Log, cfg.After) })
	}
	if placing(a.cfg) {
		g.add(a.place)
	}
}

// place keeps the runtime's configuration once calls are answered: a configuration brings pods, and pods want answers.
func (a *agent) place(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return nil
	case <-a.ready:
	}
	cfg := a.cfg
	return cniconf.New(cniconf.Config{
		Socket: cfg.Socket, Network: cfg.Network, Install: cfg.Install, Multus: cfg.Multus, Flannel: cfg.Flannel,
		Facts: a.data.facts,
		Own:   a.self.pods, PodMTU: a.overlay.PodMTU, Readiness: a.told.readiness, Log: cfg.Log, Now: cfg.Now,
		After: cfg.After,
	}).Run(ctx)
}

// awaitServer ends with an error where the API server is too old for an agent that is a pod.
func awaitServer(ctx context.Context, s *kube.Store, inCluster bool, cfg Config) error {
	if !inCluster {
		return nil
	}
	return s.AwaitVersion(ctx, cfg.After)
}

// drain lets the clean-up behind the last DELs finish; the reaper still runs.
func (a *agent) drain(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, drainLimit)
	defer cancel()
	if err := a.attachments.attacher.Drain(ctx); err != nil {
		a.cfg.Log.Warn("clean-up is left to the next start", "err", err)
	}
	return nil
}

// ended drops the error of a part that ended because it was told to.
func ended(ctx context.Context, err error) error {
	if ctx.Err() != nil && errors.Is(err, ctx.Err()) {
		return nil
	}
	return err
}
