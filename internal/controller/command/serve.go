// SPDX-License-Identifier: Apache-2.0

package command

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/weft-net/weft/internal/cluster/config"
	"github.com/weft-net/weft/internal/cluster/store/kube"
	"github.com/weft-net/weft/internal/controller"
	"github.com/weft-net/weft/internal/controller/networkcheck"
	"github.com/weft-net/weft/internal/ipam/serviceips"
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/node/metrics"
)

// options are the options of a controller. Of the configuration it uses kubernetes, network and metrics.
type options struct {
	c config.Config
	// identity is unique among controllers.
	identity, version string
	getenv            func(string) string
	level             *slog.LevelVar
	log               *slog.Logger
	now               func() time.Time
	after             func(time.Duration) <-chan time.Time
	ready             func()
}

// component is the controller as the source of events.
const component = "weft-controller"

// serve runs the controller until ctx ends.
func serve(ctx context.Context, s options) error {
	k := s.c.Kubernetes
	if !k.InCluster && k.Kubeconfig == "" {
		return model.Errorf(model.CodeInvalidConf,
			"set kubernetes.inCluster or kubernetes.kubeconfig; with a directory or an etcd, agents run the controller themselves",
			"the controller needs Kubernetes")
	}
	kube.LogTo(s.log.With("component", "client-go"))
	cluster, err := kube.Open(kube.Config{
		Access: kube.Access{InCluster: k.InCluster, Kubeconfig: k.Kubeconfig, Server: k.Server, Getenv: s.getenv},
		Node:   s.c.Node, Agent: component + "/" + s.version, Component: component, Log: s.log, Now: s.now, After: s.after,
	})
	if err != nil {
		return err
	}
	c := controller.New(controller.Config{
		Objects: cluster.Objects(), Events: cluster, Identity: s.identity, Separate: true, Node: s.c.Node, Pools: s.c.Network.PoolModels(),
		FollowCalico: s.c.Network.FromPools, AssignServiceIPs: serviceips.Mode(s.c.LoadBalancer.AssignIPs), Log: s.log, Now: s.now, After: s.after,
	})
	networks := networkcheck.New(networkcheck.Config{
		Objects: cluster.Objects(), Events: cluster, Log: s.log.With("component", "networks"), Now: s.now, After: s.after,
		Leads: func() bool {
			_, leads := c.Report()
			return leads
		},
	})
	parts, ctx := errgroup.WithContext(ctx)
	if s.c.Metrics.Address != "" {
		l, err := metrics.Listen(s.c.Metrics.Address)
		if err != nil {
			return err
		}
		m := metrics.New(s.version)
		controller.RegisterMetrics(m, c)
		web := &metrics.Server{Metrics: m, Level: s.level, Log: s.log.With("component", "metrics")}
		parts.Go(func() error { return web.Run(ctx, l) })
	}
	if k.InCluster {
		parts.Go(func() error { return ended(ctx, cluster.AwaitVersion(ctx, s.after)) })
	}
	parts.Go(func() error { return ended(ctx, cluster.Run(ctx)) }) // writes events
	parts.Go(func() error { return ended(ctx, c.Run(ctx)) })
	parts.Go(func() error { return ended(ctx, networks.Run(ctx)) })
	s.ready()
	return parts.Wait()
}

// ended drops the error of a canceled context.
func ended(ctx context.Context, err error) error {
	if ctx.Err() != nil && errors.Is(err, ctx.Err()) {
		return nil
	}
	return err
}
