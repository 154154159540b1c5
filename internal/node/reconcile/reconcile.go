// SPDX-License-Identifier: Apache-2.0

// Package reconcile keeps the node's own namespace as the facts want it: when facts change, when somebody meddles with
// the kernel, and every few minutes anyway, it plans anew and brings the kernel to the plan.
//
// A whole pass applies all fragments, which writes nothing where the kernel agrees, and takes away what was of the mesh
// before it and is in no plan any more: it makes no difference whether a peer left a moment ago or while the agent was
// dead. When the last pass succeeded and facts change, a pass is over what has changed in the plan alone. What is not
// of the mesh is never touched.
package reconcile

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/weft-net/weft/internal/cluster/facts"
	"github.com/weft-net/weft/internal/kernel"
	"github.com/weft-net/weft/internal/kernel/watch"
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/netns"
	"github.com/weft-net/weft/internal/plan/mesh"
	"github.com/weft-net/weft/internal/state"
)

const (
	// settle is how long to wait after the kernel's first sign of a change, and pace how often such signs may lead to a
	// pass: pods come and go in bursts, and each is a sign.
	settle = 50 * time.Millisecond
	pace   = 300 * time.Millisecond
	// The wait after a pass that failed doubles from the first to the longest.
	firstRetry   = 200 * time.Millisecond
	longestRetry = 30 * time.Second
	// DefaultFull is how often everything is compared without a reason.
	DefaultFull = 3 * time.Minute
)

// Config is what a Reconciler needs.
type Config struct {
	Facts *facts.Facts
	Host  *kernel.Conn
	// NS is the namespace that Host is in; nil is the process's own.
	NS   *netns.NS
	Mesh mesh.Config
	// StatusFile is where the topology in force is written for `weft mesh`; empty is nowhere.
	StatusFile string
	// Runner keeps the tunnels that need a process in user space; nil where there are none.
	Runner Runner
	// Exceptions, which may be nil, says where the receiver sees pods' own addresses beside Mesh.Keep, and when to ask
	// again.
	Exceptions func() (keep []netip.Prefix, again time.Duration)
	// Own, which may be nil, says self's own addresses at its tunnels' ends beside Mesh.TunnelAddrs.
	Own func() []netip.Addr
	// Routed, which may be nil, is Mesh.Routed, and Marked, which may be, Mesh.Marked. OwnNews holds a token when one of
	// them has news.
	Routed func() []netip.Addr
	Marked func() []mesh.Marked
	// Relays, which may be nil, is Mesh.Relays.
	Relays  func() []mesh.Relay
	OwnNews <-chan struct{}
	// Full is how often everything is compared without a reason; 0 is DefaultFull.
	Full time.Duration
	// Quiet are tables of nft that their owner changes all the time: that something of them is gone is no reason to look.
	Quiet []watch.Own
	// Repaired, which may be nil, is told what others had changed and is about to be brought back.
	Repaired func(things []string)
	// Passed, which may be nil, is told what is in force after each pass. The next one waits for it.
	Passed func(Status)
	Log    *slog.Logger
	Now    func() time.Time
	After  facts.Clock
}

// Reconciler keeps the mesh. Run does the work.
type Reconciler struct {
	cfg Config
	// swept are the tables of earlier agents that are known to be gone; the pass' own.
	swept map[string]bool
	// settled tells that the last pass succeeded: the kernel held what the status says.
	settled bool
	// tookOver tells that no route of flannel is left.
	tookOver bool
	expect   *expected
	// running are the tunnels in user space.
	running []mesh.Tunnel
	file    file
	// except are the exceptions that the last pass planned with, and again says when to ask for them.
	except []netip.Prefix
	again  time.Duration
	// checksums are the loop's own.
	checksums *checksums

	mu     sync.Mutex
	status Status
}

// New makes a reconciler.
func New(cfg Config) *Reconciler {
	if cfg.Full == 0 {
		cfg.Full = DefaultFull
	}
	cfg.Log = cfg.Log.With("room", "reconcile")
	return &Reconciler{cfg: cfg, swept: map[string]bool{}, expect: newExpected(), checksums: newChecksums()}
}

// Status is what is in force.
func (r *Reconciler) Status() Status {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.status
}

// Run reconciles until ctx ends. What was made stays: packets of pods go on while the agent is away.
func (r *Reconciler) Run(ctx context.Context) error {
	if err := r.checkStatusFile(); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer func() {
		cancel()
		r.checksums.asking.Wait()
	}()
	signs, err := watch.Signs(ctx, r.cfg.NS, r.concerns)
	if err != nil {
		return fmt.Errorf("reconcile: %w", err)
	}
	changed, unsubscribe := r.cfg.Facts.Subscribe()
	defer unsubscribe()
	l := loop{Reconciler: r, signs: signs, changed: changed, wait: firstRetry}
	if r.cfg.Runner != nil {
		l.broken = r.cfg.Runner.Changed()
	}
	for l.next(ctx) {
		l.pass(ctx)
		l.probe(ctx)
		if err := l.listen(ctx); err != nil {
			return fmt.Errorf("reconcile: %w", err)
		}
	}
	if _, unsaved := l.unsaved(); unsaved {
		l.write()
	}
	return nil
}

// concerns tells whether a change in the kernel may concern the mesh. The comings and goings of pods do not.
func (r *Reconciler) concerns(s watch.Sign) bool {
	switch s.Kind {
	case watch.Route:
		// whoever put it there
		return mesh.Owns(state.Route{Protocol: mesh.Protocol, Table: s.Table, Metric: s.Metric}) && r.expect.route(s)
	case watch.Neigh:
		return s.Link != "" && r.expect.entry(s) &&
			slices.ContainsFunc(r.Status().Topology.Node.Host.Links, func(l state.Link) bool { return l.Name == s.Link })
	case watch.Link:
		t := r.Status().Topology
		return s.Link == r.cfg.Mesh.Interface && s.Link != "" ||
			slices.ContainsFunc(t.Underlay, func(u mesh.Underlay) bool { return u.Link == s.Link }) ||
			slices.ContainsFunc(t.Node.Host.Links, func(l state.Link) bool { return l.Name == s.Link })
	case watch.Addr:
		if s.Link == r.cfg.Mesh.Interface && s.Link != "" {
			return true
		}
		if slices.ContainsFunc(r.Status().Topology.Node.Host.Addrs, func(a state.Addr) bool {
			return a.Prefix.Addr() == s.Addr
		}) {
			return true
		}
		c := r.cfg.Facts.Cluster()
		return c != nil && slices.ContainsFunc(c.Nodes, func(n model.Node) bool {
			return n.Name == c.Self && mesh.Has(n, s.Addr)
		})
	}
	return true
}

// reconcile makes one pass, a whole one or one over what has changed. The status says how it went for each fragment;
// the error is all that failed.
func (r *Reconciler) reconcile(ctx context.Context, c *model.Cluster, whole bool) (status Status, err error) {
	spaces := kernel.Spaces{Host: r.cfg.Host}
	status = Status{Self: c.Self, Checksums: maps.Clone(r.checksums.told)}
	defer func() { r.settled = err == nil && ctx.Err() == nil }()
	cfg, err := r.learn(ctx)
	if err != nil {
		return status, err
	}
	answers, err := spaces.Observe(ctx, mesh.Observe(c, cfg))
	if err != nil {
		return status, fmt.Errorf("observe: %w", err)
	}
	status.Topology, err = mesh.Plan(c, cfg, answers)
	if err != nil {
		return status, err
	}
	if !whole {
		if done, err := r.step(ctx, spaces, r.Status().Topology, &status); done || err != nil {
			return status, err
		}
	}
	r.expect.set(status.Topology)
	before, err := r.cfg.Host.ReadMarked(ctx, marks(status.Topology))
	if err != nil {
		return status, fmt.Errorf("what is of the mesh: %w", err)
	}
	errs := apply(ctx, spaces, &status)
	if err := r.keep(ctx, status.Topology); err != nil {
		errs = append(errs, err)
	}
	errs = append(errs, r.sweep(ctx, spaces, before, status.Topology.Lost))
	if len(status.Topology.Lost) > 0 {
		return status, errors.Join(errs...)
	}
	if err := errors.Join(append(errs, r.sweepTables(ctx, spaces, status.Topology))...); err != nil {
		return status, err
	}
	return status, r.takeOver(ctx, spaces, before, status.Topology)
}

// apply brings the kernel to all fragments at once; when that fails, to one after the other, so that one peer's trouble
// is not another's and the status can name it.
func apply(ctx context.Context, spaces kernel.Spaces, status *Status) []error {
	t := &status.Topology
	all := state.Fragment{Owner: "mesh"}
	all.Host.Routes = make([]state.Route, 0, len(t.Peers))
	all.Merge(t.Node)
	for i := range t.Peers {
		all.Merge(t.Peers[i].Fragment)
	}
	together := spaces.Apply(ctx, all)
	if status.inForce(); together == nil {
		return nil
	}
	var errs []error
	for i, f := range t.Fragments() {
		if err := spaces.Apply(ctx, f); err != nil {
			status.Fragments[i].OK, status.Fragments[i].Error = false, err.Error()
			errs = append(errs, fmt.Errorf("%s: %w", f.Owner, err))
		}
	}
	return errs
}
