// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"path/filepath"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/weft-net/weft/internal/controller"
	"github.com/weft-net/weft/internal/ipam/blocks"
	"github.com/weft-net/weft/internal/metrics"
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/store/kube"
)

const (
	// controllerFirst is when an agent looks for the controller first, controllerEvery how often then.
	controllerFirst, controllerEvery = time.Minute, 5 * time.Minute
	// versionAgain is when an API server that did not answer is asked for its version again.
	versionAgain = 10 * time.Second
)

// RunController runs the controller as a program of its own, beside agents that have no rights to do what it does, until ctx ends.
// Of the configuration it goes by kubernetes, network and metrics. name tells it from others of its kind.
func RunController(ctx context.Context, cfg Config, name string) error {
	k := cfg.Kubernetes
	if !k.InCluster && k.Kubeconfig == "" {
		return model.Faultf(model.CodeInvalidConf, "set kubernetes.inCluster or kubernetes.kubeconfig; with a directory or an etcd agents do it themselves",
			"the controller has no Kubernetes")
	}
	kube.LogTo(cfg.Log.With("room", "client-go"))
	s, err := kube.Open(kube.Config{
		Access: kube.Access{InCluster: k.InCluster, Kubeconfig: k.Kubeconfig, Server: k.Server, Getenv: cfg.Getenv},
		Node:   cfg.Node, Agent: "weft-controller/" + cfg.Version, Log: cfg.Log, Now: cfg.Now, After: cfg.After,
	})
	if err != nil {
		return err
	}
	c := controller.New(controller.Config{
		Objects: s.Objects(), Identity: name, Apart: true, Node: cfg.Node, Pools: cfg.Network.PoolModels(),
		FollowCalico: cfg.Network.FromPools, Log: cfg.Log, Now: cfg.Now, After: cfg.After,
	})
	parts, ctx := errgroup.WithContext(ctx)
	if cfg.Metrics.Address != "" {
		l, err := metrics.Listen(cfg.Metrics.Address)
		if err != nil {
			return err
		}
		m := metrics.New(cfg.Version)
		measureController(m, c)
		web := &metrics.Server{Metrics: m, Level: cfg.Level, Log: cfg.Log.With("room", "metrics")}
		parts.Go(func() error { return web.Run(ctx, l) })
	}
	parts.Go(func() error { return ended(ctx, awaitServer(ctx, s, k.InCluster, cfg)) })
	parts.Go(func() error { return ended(ctx, c.Run(ctx)) })
	if cfg.Ready != nil {
		cfg.Ready()
	}
	return parts.Wait()
}

// apart reports whether the controller is a program of its own: an agent that is a pod has a node's rights alone.
func (a *agent) apart() bool { return a.kube != nil && a.cfg.Kubernetes.InCluster }

// awaitServer ends with an error where the API server is too old to tell whose node a token is: then nothing would keep a node's
// token from writing what is another node's. While the server does not answer it is asked again; no pod needs that.
func awaitServer(ctx context.Context, s *kube.Store, inCluster bool, cfg Config) error {
	if !inCluster {
		return nil
	}
	for {
		err := s.CheckVersion(ctx)
		var f *model.Fault
		if err == nil || errors.As(err, &f) {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-cfg.After(versionAgain):
		}
	}
}

// watchController warns where no controller looks after the pools that this node gives addresses of: the manifests of a version
// before it was a program of its own have none. It is noted in the state directory for weft doctor.
func (a *agent) watchController(ctx context.Context) error {
	var seen controller.Sign
	path := filepath.Join(a.cfg.StateDir, blocks.NoControllerFile)
	pause, warned := controllerFirst, ""
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-a.cfg.After(pause):
		}
		pause = controllerEvery
		trouble := ""
		if a.pooled() {
			sign, err := controller.Look(ctx, a.objects())
			switch {
			case ctx.Err() != nil:
				return nil
			case err != nil:
				trouble = err.Error()
			case sign == controller.Sign{}:
				trouble = "there is no controller"
			case sign == seen:
				trouble = "the controller does not run: " + sign.Holder + " is silent"
			}
			seen = sign
		}
		if trouble != warned {
			if warned = trouble; trouble != "" {
				a.cfg.Log.Warn("nobody looks after the pools of addresses; apply the Deployment weft-controller of the manifests", "why", trouble)
			}
			if err := note(path, trouble, trouble == ""); err != nil {
				a.cfg.Log.Warn("that there is no controller is not noted", "err", err)
			}
		}
	}
}

// measureController adds what a controller knows.
func measureController(m *metrics.Metrics, c *controller.Controller) {
	m.Gauge("weft_controller_leads", "1 where the cluster's pools are looked after.", func() float64 {
		if _, leads := c.Report(); leads {
			return 1
		}
		return 0
	})
	of := func(value func(controller.PoolReport) float64) func() map[string]float64 {
		return func() map[string]float64 {
			out := map[string]float64{}
			r, _ := c.Report()
			for _, p := range r.Pools {
				out[p.Name] = value(p)
			}
			return out
		}
	}
	m.Gauges("weft_pool_allocatable", "1 when addresses can be had of the pool.", "pool", of(func(p controller.PoolReport) float64 {
		if p.Allocatable {
			return 1
		}
		return 0
	}))
	m.Gauges("weft_pool_addresses", "All addresses of the pool.", "pool", of(func(p controller.PoolReport) float64 { return p.Addresses }))
	m.Gauges("weft_pool_blocks", "Blocks of the pool that nodes have.", "pool", of(func(p controller.PoolReport) float64 { return float64(p.Blocks) }))
	m.Gauges("weft_pool_addresses_claimed", "Addresses in blocks that nodes have.", "pool", of(func(p controller.PoolReport) float64 { return p.Claimed }))
	m.Gauges("weft_pool_addresses_reserved", "Addresses that are reserved one by one.", "pool", of(func(p controller.PoolReport) float64 { return float64(p.Reserved) }))
	m.Gauges("weft_pool_findings", "What the last comparison of blocks, reservations, nodes and pods found.", "pool", func() map[string]float64 {
		out := map[string]float64{}
		r, _ := c.Report()
		for _, p := range r.Pools {
			out[p.Name] = 0
		}
		for _, f := range r.Findings {
			out[f.Pool]++
		}
		return out
	})
}
