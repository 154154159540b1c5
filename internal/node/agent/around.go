// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/weft-net/weft/internal/cluster/config"
	"github.com/weft-net/weft/internal/cluster/facts"
	"github.com/weft-net/weft/internal/endpoint/attach"
	"github.com/weft-net/weft/internal/node/gc"
	"github.com/weft-net/weft/internal/node/hostenv"
	"github.com/weft-net/weft/internal/node/loglevel"
	"github.com/weft-net/weft/internal/node/metrics"
	"github.com/weft-net/weft/internal/node/readiness"
	"github.com/weft-net/weft/internal/notify"
	"github.com/weft-net/weft/internal/plan/mesh"
)

// partCalls is the answering of calls in health.
const partCalls = "agent"

// around is what an agent has beside what it needs to answer calls.
type around struct {
	health  *readiness.Readiness
	metrics *metrics.Metrics // nil when nobody may ask
	web     net.Listener
	facts   *facts.Facts // nil without a store
	ready   chan struct{}
	// topology is the mesh that is in force, nil before the first pass; planned holds a token when there is a new one.
	topology atomic.Pointer[mesh.Topology]
	planned  notify.Chan
	// ownNews holds a token when the mesh is to plan with other things of this node's.
	ownNews notify.Chan
	// brought holds a token when a pod may have brought addresses along, or taken them away.
	brought notify.Chan
	// marked are the pods whose code points the mesh knows, nil before it asked.
	marked atomic.Pointer[[]attach.Marked]
	// waiting is since when the node has no prefix, as place found out; warned, that it was said.
	waiting time.Time
	warned  bool
}

// prepare makes what is around the agent, as far as it was asked for.
func (a *agent) prepare() error {
	if err := errors.Join(hostenv.WritableSysctls(), hostenv.OwnProcesses(a.cfg.Install.HostRoot)); err != nil {
		a.cfg.Log.Warn("container", "err", err)
	}
	a.ready, a.planned, a.ownNews = make(chan struct{}), notify.New(), notify.New()
	a.brought = notify.New()
	a.health = readiness.New(partCalls)
	if a.placing() {
		a.health = readiness.New(partCalls, partConf)
	}
	if a.store != nil {
		a.facts = facts.New(a.store, a.cfg.Node, a.cfg.Log, a.cfg.After)
		a.facts.Sized = func(nodes int) { a.resize(func(s *sizes) { s.nodes = nodes }) }
	}
	return a.measure()
}

// sizes are how much is known of the cluster.
type sizes struct {
	mu          sync.Mutex
	nodes, pods int
}

func (a *agent) resize(change func(*sizes)) {
	a.known.mu.Lock()
	defer a.known.mu.Unlock()
	change(&a.known)
	if a.cfg.Sized != nil {
		a.cfg.Sized(a.known.nodes, a.known.pods)
	}
}

func (a *agent) placing() bool {
	return a.cfg.Network.Mode != "" && a.cfg.Network.Mode != config.ModeNone
}

// answering is called once calls are answered.
func (a *agent) answering() {
	a.health.Set(partCalls, nil)
	close(a.ready)
	if a.cfg.Ready != nil {
		a.cfg.Ready()
	}
}

// surround starts what is around the agent.
func (a *agent) surround(ctx context.Context, parts *errgroup.Group) {
	if a.web != nil {
		parts.Go(func() error { return ended(ctx, a.tell(ctx)) })
	}
	if a.cfg.Runtime.Endpoint != "" {
		parts.Go(func() error { return ended(ctx, a.collector().Run(ctx)) })
	}
	if a.policy != nil {
		parts.Go(func() error { return ended(ctx, a.warnUnenforced(ctx)) })
	}
	if a.cfg.File != "" && a.cfg.Level != nil {
		parts.Go(func() error { return ended(ctx, loglevel.Follow(ctx, a.cfg.File, a.cfg.Level, a.cfg.Log, a.cfg.After)) })
	}
	if a.placing() {
		parts.Go(func() error {
			select {
			case <-ctx.Done():
				return nil
			case <-a.ready: // a configuration brings pods, and pods want answers
			}
			return ended(ctx, a.place(ctx))
		})
	}
	if a.facts != nil && len(a.cfg.Network.PodAddresses) > 0 {
		parts.Go(func() error { return ended(ctx, a.tellBrought(ctx)) })
	}
	if a.telling() {
		parts.Go(func() error { return ended(ctx, a.tellNode(ctx)) })
	}
}

// collector makes what deletes attachments whose sandboxes are gone.
func (a *agent) collector() *gc.Collector {
	return gc.New(gc.Config{
		Endpoint: a.cfg.Runtime.Endpoint, Interval: time.Duration(a.cfg.Runtime.GCInterval), PodUID: a.cfg.PodUID, Records: a.ledger,
		Attachments: a.attacher, Metrics: a.metrics, Log: a.cfg.Log, Now: a.cfg.Now, After: a.cfg.After,
	})
}
