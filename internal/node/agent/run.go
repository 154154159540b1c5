// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/weft-net/weft/internal/cluster/config"
	"github.com/weft-net/weft/internal/cluster/store/kube"
	"github.com/weft-net/weft/internal/controller"
	"github.com/weft-net/weft/internal/endpoint/attach"
	"github.com/weft-net/weft/internal/kernel/wireguard"
	"github.com/weft-net/weft/internal/node/advertise"
	"github.com/weft-net/weft/internal/node/clusterpools"
	"github.com/weft-net/weft/internal/node/cniconf"
	"github.com/weft-net/weft/internal/node/gc"
	"github.com/weft-net/weft/internal/node/loglevel"
	"github.com/weft-net/weft/internal/node/metrics"
	"github.com/weft-net/weft/internal/node/peermetrics"
	"github.com/weft-net/weft/internal/node/serviceannounce"
	"github.com/weft-net/weft/internal/node/unenforced"
	"github.com/weft-net/weft/internal/plan/mesh"
)

// drainLimit limits the cleanup after the last DELs when the agent stops; Recover continues it.
const drainLimit = 5 * time.Second

// group has the running components, until their context ends.
type group struct {
	*errgroup.Group
	ctx context.Context
}

// add starts a component. Its end after the cancellation is no error.
func (g group) add(run func(ctx context.Context) error) {
	g.Go(func() error { return ended(g.ctx, run(g.ctx)) })
}

// run starts the components and stops them in the reverse order.
func (a *agent) run(ctx context.Context) error {
	behind, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	parts, behind := errgroup.WithContext(behind)
	g := group{parts, behind}
	g.add(a.own.reaper.Run)
	g.add(func(ctx context.Context) error {
		if err := a.own.events.Run(ctx); err != nil {
			a.cfg.Log.Error("deleted namespaces and queued DELs are found by periodic passes only", "err", err)
		}
		return nil
	})
	g.add(a.own.deletions.Run)
	a.recover(ctx)
	a.enforcement.adopt(a.attachments.vms.Has)
	a.attachments.guests.Start(behind)
	defer a.attachments.guests.Wait()
	parts.Go(func() error {
		defer stop()
		serving, cancel := context.WithCancel(ctx)
		defer cancel()
		defer context.AfterFunc(behind, cancel)() // another component failed
		return errors.Join(a.server.Run(serving), a.drain(context.WithoutCancel(ctx)))
	})
	g.add(a.admin)
	g.add(a.flows.Run)
	for _, e := range a.exporters {
		g.add(e.Run)
	}
	if a.flowServer != nil {
		g.add(a.flowServer.Run)
	} else if a.data.kube != nil {
		g.add(a.flowPublication().Withdraw)
	}
	g.add(func(ctx context.Context) error {
		return a.attachments.attacher.Reconcile(ctx,
			attach.ReconcileConfig{After: a.cfg.After, OtherOwners: a.enforcement.quiet()})
	})
	a.runAddresses(g)
	a.runAuxiliary(g)
	g.add(func(ctx context.Context) error { return a.enforcement.run(ctx, a.attachments.vms.Has) })
	if a.attachments.mover != nil {
		g.add(a.attachments.mover.Run)
	}
	a.runMesh(g)
	g.add(a.fast.Run)
	if a.data.kube != nil {
		g.add(a.data.kube.Run)
		g.add(func(ctx context.Context) error { return awaitServer(ctx, a.data.kube, a.data.apart(), a.cfg) })
	}
	return parts.Wait()
}

// recover rolls back what a killed agent left.
func (a *agent) recover(ctx context.Context) {
	if err := a.attachments.vms.Load(ctx); err != nil {
		a.cfg.Log.Error("recovery of VMs failed", "err", err)
	}
	report, err := a.attachments.attacher.Recover(ctx)
	if err != nil {
		a.cfg.Log.Error("recovery is incomplete", "err", err)
	}
	a.cfg.Log.Info("agent has recovered the ledger", "report", report.String())
	for _, problem := range report.Problems {
		a.cfg.Log.Error("recovery found a problem", "err", problem)
	}
	if err := a.attachments.vms.Serve(ctx); err != nil {
		a.cfg.Log.Error("restore of VM state failed", "err", err)
	}
}

// runAddresses starts the components of addresses.
func (a *agent) runAddresses(g group) {
	if a.blocks == nil {
		return
	}
	cfg, d := a.cfg, &a.data
	var events controller.Events
	if d.kube != nil {
		events = d.kube
	}
	pools := clusterpools.New(clusterpools.Config{
		Node: a.self.member, StateDir: cfg.StateDir, Network: cfg.Network, Objects: d.Objects(), Facts: d.facts,
		Events: events, Apart: d.apart(),
		Needed: a.addresses.Pooled, FollowCalico: a.addresses.ServesCluster, Metrics: a.telemetry.metrics, Log: cfg.Log,
		Now: cfg.Now, After: cfg.After,
	})
	g.add(a.addresses.Run)
	g.add(a.addresses.Audit)
	g.add(pools.Run)
	if a.tunnels != nil {
		g.add(a.tunnels.Run)
		g.add(pools.CreatePools)
	}
	if a.enforcement.adopted != nil {
		g.add(a.enforcement.adopted.Run)
	}
}

// followsCluster reports whether the agent follows the cluster's objects. Hosts with a shared etcd have their own
// networks, unless weft's is configured.
func (a *agent) followsCluster() bool {
	return a.data.objectStore != nil && (a.data.etcd == nil || placing(a.cfg))
}

// runMesh starts the mesh.
func (a *agent) runMesh(g group) {
	cfg, d := a.cfg, &a.data
	switch {
	case a.followsCluster():
		g.add(d.facts.Run)
		g.add(a.overlay.Run)
		if a.bgp != nil {
			g.add(a.bgp.Run)
		} else if cfg.LoadBalancer.Announce && !cfg.Network.Mode.OtherVendor() {
			g.add(serviceannounce.New(serviceannounce.Config{
				Node: cfg.Node, Objects: d.Objects(), Facts: d.facts, Topology: a.overlay.Topology, Log: cfg.Log, After: cfg.After,
			}).Run)
		}
	case a.overlay.HasStatusFile():
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
	mode, publishes := cfg.Network.Mode, a.self.settings.Publishes() || a.self.settings.PublishesVTEP()
	if mode == config.ModeFlannel || publishes {
		g.add(advertise.NewNode(advertise.NodeConfig{
			Node: a.self.member, Mode: cfg.Network.Mode, Flannel: cfg.Flannel, Settings: a.self.settings, Mesh: a.overlay,
			Kubernetes: d.kube, Directory: d.dir,
			Log: cfg.Log, After: cfg.After,
		}).Run)
	}
	if d.kube != nil && publishes && !mode.OtherVendor() {
		g.add(advertise.NewCondition(advertise.ConditionConfig{
			Node: cfg.Node, Mode: mode, API: d.kube, Cause: a.networkCause, Log: cfg.Log, Now: cfg.Now, After: cfg.After,
		}).Run)
	}
}

// networkCause returns why the node's pod network is not available; false while that is not known.
func (a *agent) networkCause() (advertise.Cause, bool) {
	var own error
	if a.cfg.Network.Mode != config.ModeNone { // the operator's configurations say where addresses come from
		_, own = a.self.pods.Own()
	}
	mesh, err := a.overlay.Status()
	if err != nil { // there was no pass, because the cluster is not known
		return advertise.Cause{}, false
	}
	return advertise.CauseOf(own, a.telemetry.readiness.Of(cniconf.Component), mesh.Broken)
}

// runAuxiliary starts components that are not needed to serve calls.
func (a *agent) runAuxiliary(g group) {
	cfg, d := a.cfg, &a.data
	if a.telemetry.web != nil {
		server := &metrics.Server{
			Metrics:     a.telemetry.metrics,
			Ready:       func() error { return a.telemetry.servesPods(a.own.ledger) },
			Alive:       a.own.alive,
			Level:       cfg.Level,
			Attachments: a.attachments.inspector.List,
			Addresses:   a.addresses.Allocations,
			Log:         cfg.Log.With("component", "metrics"),
		}
		g.add(func(ctx context.Context) error { return server.Run(ctx, a.telemetry.web) })
	}
	if a.telemetry.web != nil && d.facts != nil && cfg.Metrics.Peers != config.PeersNone {
		g.add(peermetrics.New(peermetrics.Config{
			Topology: func() (mesh.Topology, error) {
				status, err := a.overlay.Status()
				return status.Topology, err
			},
			Counted: func(link string) (map[wireguard.PublicKey]wireguard.Traffic, error) {
				return wireguard.Counted(nil, link)
			},
			All: cfg.Metrics.Peers == config.PeersAll, Log: cfg.Log.With("component", "peers"), After: cfg.After,
		}, a.telemetry.metrics).Run)
	}
	if cfg.Runtime.Endpoint != "" {
		g.add(gc.New(gc.Config{
			Endpoint: cfg.Runtime.Endpoint, Interval: time.Duration(cfg.Runtime.GCInterval), PodUID: cfg.PodUID,
			Records:     a.own.ledger,
			Attachments: a.attachments.attacher, Metrics: a.telemetry.metrics, Log: cfg.Log, Now: cfg.Now, After: cfg.After,
		}).Run)
	}
	if a.enforcement.policy != nil {
		g.add(func(ctx context.Context) error {
			return unenforced.Watch(ctx, d.Objects(), cfg.StateDir, cfg.Log, cfg.After)
		})
	}
	if a.enforcement.policy != nil && cfg.Network.Mode == config.ModePolicy {
		pods := unenforced.PodsConfig{
			Cluster: d.facts.Cluster, Synced: d.facts.Synced(), Records: a.own.ledger, Log: cfg.Log, After: cfg.After,
		}
		if d.kube != nil {
			pods.Event = d.kube.Event
		}
		g.add(func(ctx context.Context) error { return unenforced.WatchPods(ctx, pods) })
	}
	if cfg.File != "" && cfg.Level != nil {
		g.add(func(ctx context.Context) error { return loglevel.Follow(ctx, cfg.File, cfg.Level, cfg.Log, cfg.After) })
	}
	a.runMacvtaps(g)
	if placing(a.cfg) {
		g.add(a.place)
	}
}

// place writes the runtime's configuration when calls are served: with a configuration the runtime starts pods.
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
		Own:   a.self.pods, PodMTU: a.overlay.PodMTU, Readiness: a.telemetry.readiness, Log: cfg.Log, Now: cfg.Now,
		After: cfg.After,
	}).Run(ctx)
}

// awaitServer returns an error if the API server is too old for an agent that is a pod.
func awaitServer(ctx context.Context, s *kube.Store, inCluster bool, cfg Config) error {
	if !inCluster {
		return nil
	}
	return s.AwaitVersion(ctx, cfg.After)
}

// drain finishes the cleanup after the last DELs; the reaper still runs.
func (a *agent) drain(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, drainLimit)
	defer cancel()
	if err := a.attachments.attacher.Drain(ctx); err != nil {
		a.cfg.Log.Warn("cleanup was not finished, and the next start continues it", "err", err)
	}
	return nil
}

// ended drops the error of a component that ended after the cancellation.
func ended(ctx context.Context, err error) error {
	if ctx.Err() != nil && errors.Is(err, ctx.Err()) {
		return nil
	}
	return err
}
