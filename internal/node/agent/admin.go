// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"maps"
	"net/http"

	"github.com/weft-net/weft/internal/cluster/filecluster"
	"github.com/weft-net/weft/internal/docker/agentapi"
	"github.com/weft-net/weft/internal/flow"
	"github.com/weft-net/weft/internal/flow/export"
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/node/adminapi"
	"github.com/weft-net/weft/internal/node/containers"
	"github.com/weft-net/weft/internal/node/explainer"
	"github.com/weft-net/weft/internal/node/flowserver"
	"github.com/weft-net/weft/internal/node/migration"
	"github.com/weft-net/weft/internal/node/observer"
	"github.com/weft-net/weft/internal/node/policy"
	"github.com/weft-net/weft/internal/node/tracer"
	"github.com/weft-net/weft/internal/plan/mesh"
)

// admin serves the admin socket until ctx ends.
func (a *agent) admin(ctx context.Context) (err error) {
	routes := adminapi.Routes{
		"POST " + adminapi.RouteCheck: func(r *http.Request) (any, error) {
			return a.attachments.inspector.CheckAll(r.Context()), nil
		},
		"GET " + adminapi.RouteStatus: func(r *http.Request) (any, error) { return a.collector().Status(r.Context()), nil },
		"GET " + adminapi.RouteVersion: func(*http.Request) (any, error) {
			return adminapi.Version{Node: a.cfg.Node, Version: a.cfg.Version}, nil
		},
		"GET " + adminapi.RouteMesh:     func(*http.Request) (any, error) { return a.overlay.Status() },
		"GET " + adminapi.RouteSettings: func(*http.Request) (any, error) { return settings(a.cfg), nil },
	}
	maps.Copy(routes, a.attachments.vms.Routes())
	maps.Copy(routes, containers.Server{
		Records: a.own.ledger, Attachments: a.attachments.attacher, Pools: a.containerPools,
		Networks: a.containerNetworks(), Event: a.nodeEvent(), Log: a.cfg.Log.With("component", "containers"),
	}.Routes())
	maps.Copy(routes, a.explainer().Routes())
	traces := &tracer.Tracer{Records: a.own.ledger, Hold: a.fast.Hold, Log: a.cfg.Log}
	defer func() { err = errors.Join(err, traces.Close()) }()
	maps.Copy(routes, traces.Routes())
	maps.Copy(routes, a.flows.Routes())
	if a.bgp != nil {
		routes["GET "+adminapi.RouteBGP] = func(*http.Request) (any, error) { return a.bgp.Status(), nil }
	}
	if a.enforcement.policy != nil {
		maps.Copy(routes, a.enforcement.policy.Routes().Under(policy.Prefix))
	}
	if a.attachments.mover != nil {
		maps.Copy(routes, a.attachments.mover.Routes().Under(migration.Prefix))
	}
	return routes.ServeOn(ctx, a.admins, a.cfg.Log)
}

// explainer answers the questions of weft explain.
func (a *agent) explainer() *explainer.Explainer {
	c := explainer.Config{
		Node: a.cfg.Node, Records: a.own.ledger, VMs: a.own.ledger.VMs(), Root: a.cfg.Install.HostRoot, Now: a.cfg.Now,
	}
	if a.enforcement.policy != nil {
		c.Policies = a.enforcement.policy
	}
	if a.data.facts != nil {
		c.Topology = func() (mesh.Topology, error) {
			s, err := a.overlay.Status()
			return s.Topology, err
		}
	}
	return explainer.New(c)
}

// buildObserver creates what streams the node's flows for weft observe.
func (a *agent) buildObserver(exports *export.Sockets) *observer.Observer {
	c := observer.Config{
		Node: a.cfg.Node, Records: a.own.ledger, Level: a.cfg.Observe.Level, Log: a.cfg.Log, Now: a.cfg.Now,
	}
	if len(a.exporters) > 0 {
		c.Own = exports.Has
		c.Export = func(r flow.Record) {
			for _, e := range a.exporters {
				e.Put(r)
			}
		}
	}
	if a.own.settings != nil {
		c.Settings = a.own.settings
	}
	if a.enforcement.policy != nil {
		c.Policies = a.enforcement.policy
	}
	if a.data.facts != nil {
		c.Pods = func() []model.Pod {
			if cluster := a.data.facts.Cluster(); cluster != nil {
				return cluster.Pods
			}
			return nil
		}
		c.Nodes = func() []model.Node {
			if cluster := a.data.facts.Cluster(); cluster != nil {
				return cluster.Nodes
			}
			return nil
		}
	}
	o := observer.New(c)
	if m := a.telemetry.metrics; m != nil && c.Level != flow.LevelOff {
		measureFlows(m, o)
	}
	return o
}

// buildFlowServer creates what serves flows to those who may see them; nil without observe.listen.
func (a *agent) buildFlowServer() (*flowserver.Server, error) {
	if a.cfg.Observe.Listen == "" {
		return nil, nil
	}
	if a.data.kube == nil {
		return nil, model.Errorf(model.CodeInvalidConf, "set kubernetes, or leave it out",
			"observe.listen %q: there is no API server that could say who may see flows", a.cfg.Observe.Listen)
	}
	return flowserver.New(flowserver.Config{
		Address: a.cfg.Observe.Listen, API: a.data.kube, Publication: a.flowPublication(), Flows: a.flows.Stream, Log: a.cfg.Log,
		Now: a.cfg.Now, After: a.cfg.After,
	})
}

// flowPublication is how clients find the agent's listener of flows, on an API server.
func (a *agent) flowPublication() flowserver.Publication {
	return flowserver.Publication{
		Node: a.cfg.Node, Objects: a.data.Objects(), API: a.data.kube, Log: a.cfg.Log, After: a.cfg.After,
	}
}

// listenAdmin takes over the admin socket next to the CNI socket, and links it from the state directory. From then on
// clients wait for admin.
func (a *agent) listenAdmin() (err error) {
	path := adminapi.Path(a.cfg.Socket)
	if err := adminapi.Link(path, a.cfg.StateDir); err != nil {
		return err
	}
	a.admins, err = adminapi.Listen(path, a.cfg.Log)
	return err
}

// containerPools returns the ranges from which containers of Docker may get addresses on the cluster's network.
func (a *agent) containerPools() (all []agentapi.Pool) {
	if !a.self.pods.FromPools() {
		for _, p := range a.self.pods.PodCIDRs() {
			all = append(all, agentapi.Pool{CIDR: p.Masked()})
		}
		return all
	}
	cluster := a.data.facts.Cluster()
	if cluster == nil {
		return nil
	}
	for _, p := range cluster.Pools {
		if p.AssignmentMode == "" || p.Disabled || p.Deleted || !p.Allows(model.UseWorkload) {
			continue
		}
		for _, r := range p.Regions {
			all = append(all, agentapi.Pool{Name: p.Name, CIDR: r.CIDR})
		}
	}
	return all
}

// containerNetworks returns what reads the networks that containers of Docker may be on; nil without a cluster.
func (a *agent) containerNetworks() containers.Networks {
	switch {
	case a.data.kube != nil:
		return a.data.kube
	case a.data.dir != nil:
		return filecluster.Cluster{Facts: a.data.facts, Store: a.data.dir, Node: a.cfg.Node, Now: a.cfg.Now}
	}
	return nil
}
