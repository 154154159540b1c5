// SPDX-License-Identifier: Apache-2.0

// Package reconcile keeps the node's network namespace equal to the mesh's plan: when facts change, after an external
// change of the kernel, and periodically, it computes a new plan and applies it.
//
// A whole pass applies all fragments, which writes nothing where the kernel agrees, and deletes objects of the mesh
// that are in no plan any more: it makes no difference whether a peer left a moment ago or while the agent did not
// run. If the last pass succeeded and facts change, a pass only applies the changes of the plan. Objects that are not
// of the mesh are never touched.
package reconcile

import (
	"context"
	"errors"
	"fmt"
	"iter"
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
	// settle is the pause after the kernel's first notification of a change, and pace the shortest time between passes
	// because of notifications: pods start in bursts, and each causes notifications.
	settle = 50 * time.Millisecond
	pace   = 300 * time.Millisecond
	// The pause after a failed pass doubles from the first to the longest.
	firstRetry   = 200 * time.Millisecond
	longestRetry = 30 * time.Second
	// DefaultFull is how often everything is compared without an event.
	DefaultFull = 3 * time.Minute
)

// Config configures a Reconciler.
type Config struct {
	Facts *facts.Facts
	Host  *kernel.Conn
	// NS is the namespace that Host is in; nil is the process's own.
	NS   *netns.NS
	Mesh mesh.Config
	// StatusFile is the file with the topology in force, for `weft mesh`; empty is none.
	StatusFile string
	// Runner runs the tunnels that need a process in user space; nil if there are none.
	Runner Runner
	// Exceptions, which may be nil, returns destinations without masquerading in addition to Mesh.Keep, and when to
	// call it again.
	Exceptions func() (keep []netip.Prefix, again time.Duration)
	// Owner, which may be nil, returns self's own tunnel addresses in addition to Mesh.TunnelAddrs.
	Own func() []netip.Addr
	// Routed and Marked, which may be nil, return Mesh.Routed and Mesh.Marked. OwnChanged receives a token when a result
	// of Own, Routed, Marked or Relays has changed.
	Routed func() []netip.Addr
	Marked func() []mesh.DSCPMark
	// Relays, which may be nil, returns Mesh.Relays.
	Relays     func() []mesh.Relay
	OwnChanged <-chan struct{}
	// Learned, which may be nil, returns Topology.Learned. If the routes are not known yet, because the agent has just
	// started, known is false: then learned routes of an earlier agent stay. Without Learned there are none.
	Learned func() (routes []state.Fragment, known bool)
	// Full is how often everything is compared without an event; 0 is DefaultFull.
	Full time.Duration
	// Quiet are nft tables that their owner changes all the time: a deletion in them causes no pass.
	Quiet []watch.Owner
	// Repaired, which may be nil, is called with external changes that are about to be repaired.
	Repaired func(things []string)
	// Passed, which may be nil, is called with the status after each pass. The next pass waits for it.
	Passed func(Status)
	Log    *slog.Logger
	Now    func() time.Time
	After  facts.Clock
}

// Reconciler reconciles the mesh.
type Reconciler struct {
	cfg Config
	// planned is the last plan; guarded by the pass.
	planned mesh.Previous
	// swept are the tables of earlier agents that are known to be deleted; guarded by the pass.
	swept map[string]bool
	// settled reports that the last pass succeeded: the kernel agreed with the status.
	settled bool
	// tookOver reports that no route of flannel is left.
	tookOver bool
	expect   *expected
	// running are the tunnels in user space.
	running []mesh.Tunnel
	file    file
	// except are the exceptions of the last plan, and again is when to read them again.
	except []netip.Prefix
	again  time.Duration
	// checksums are used by the loop only.
	checksums *checksums

	mu     sync.Mutex
	status Status
}

// New returns a Reconciler.
func New(cfg Config) *Reconciler {
	if cfg.Full == 0 {
		cfg.Full = DefaultFull
	}
	cfg.Log = cfg.Log.With("component", "reconcile")
	return &Reconciler{cfg: cfg, swept: map[string]bool{}, expect: newExpected(), checksums: newChecksums()}
}

// Status returns the status of the last pass.
func (r *Reconciler) Status() Status {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.status
}

// Run reconciles until ctx ends, or the kernel's notifications, which is an error. Nothing is removed then: pods' packets are
// forwarded while the agent does not run.
func (r *Reconciler) Run(ctx context.Context) error {
	if err := r.checkStatusFile(); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer func() {
		cancel()
		r.checksums.asking.Wait()
	}()
	signs, err := watch.Events(ctx, r.cfg.NS, r.concerns)
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
	if l.deaf != nil {
		return fmt.Errorf("reconcile: %w", l.deaf)
	}
	return nil
}

// concerns reports whether a notification may concern the mesh. Those of pods' interfaces do not.
func (r *Reconciler) concerns(s watch.Event) bool {
	switch s.Kind {
	case watch.Route:
		// no matter which program added it
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
			return n.Name == c.Self && mesh.HasAddr(n, s.Addr)
		})
	}
	return true
}

// reconcile makes one pass, a whole one or one of changes. The status has the result for each fragment; the error
// joins all failures.
func (r *Reconciler) reconcile(ctx context.Context, c *model.Cluster, whole bool) (status Status, err error) {
	spaces := kernel.Spaces{Host: r.cfg.Host}
	status = Status{Self: c.Self, Checksums: maps.Clone(r.checksums.verdictOf)}
	defer func() { r.settled = err == nil && ctx.Err() == nil }()
	cfg, err := r.learn(ctx)
	if err != nil {
		return status, err
	}
	if status.Topology, err = r.plan(ctx, spaces, c, cfg, whole); err != nil {
		return status, err
	}
	known := true
	if r.cfg.Learned != nil {
		status.Topology.Learned, known = r.cfg.Learned()
	}
	if !whole {
		if done, err := r.step(ctx, spaces, r.Status().Topology, &status); done || err != nil {
			return status, err
		}
	}
	r.expect.set(status.Topology)
	stale, left, err := r.stale(ctx, status.Topology, known)
	if err != nil {
		return status, fmt.Errorf("objects of the mesh: %w", err)
	}
	errs := apply(ctx, spaces, &status)
	if err := r.keep(ctx, status.Topology); err != nil {
		errs = append(errs, err)
		status.Broken = errors.Join(status.Broken, err)
	}
	errs = append(errs, r.sweep(ctx, spaces, stale))
	if len(status.Topology.LostFamilies) > 0 {
		return status, errors.Join(errs...)
	}
	if err := errors.Join(append(errs, r.sweepTables(ctx, spaces, status.Topology))...); err != nil {
		return status, err
	}
	return status, r.takeOver(ctx, spaces, left, status.Topology)
}

// plan plans the mesh: a pass of changes only the nodes that have changed, if possible.
func (r *Reconciler) plan(
	ctx context.Context, spaces kernel.Spaces, c *model.Cluster, cfg mesh.Config, whole bool,
) (mesh.Topology, error) {
	if queries, ok := r.planned.Queries(c, cfg); ok && !whole {
		answers, err := spaces.Observe(ctx, queries)
		if err != nil {
			return mesh.Topology{}, fmt.Errorf("observe: %w", err)
		}
		if t, _, ok := r.planned.Advance(c, cfg, answers); ok {
			return t, nil
		}
	}
	answers, err := spaces.Observe(ctx, mesh.Observe(c, cfg))
	if err != nil {
		return mesh.Topology{}, fmt.Errorf("observe: %w", err)
	}
	return r.planned.Plan(c, cfg, answers)
}

// halves yields the fragment of the node and one of all peers: in a large cluster reading and writing either needs much
// memory.
func halves(t mesh.Topology) iter.Seq[state.Fragment] {
	return func(yield func(state.Fragment) bool) {
		if !yield(t.Whole().Node) {
			return
		}
		all := state.Fragment{Owner: "mesh"}
		all.Host.Routes = make([]state.Route, 0, len(t.Peers))
		for i := range t.Peers {
			all.Merge(t.Peers[i].Fragment())
		}
		for _, f := range t.Learned {
			all.Merge(f)
		}
		yield(all)
	}
}

// apply applies the two halves; if that fails, all fragments one after the other, so that a failure affects one peer only
// and the status can name it.
func apply(ctx context.Context, spaces kernel.Spaces, status *Status) []error {
	t := &status.Topology
	var applyErr error
	for f := range halves(*t) {
		if applyErr == nil {
			applyErr = spaces.Apply(ctx, f)
		}
	}
	if status.inForce(); applyErr == nil {
		return nil
	}
	var errs []error
	for i, f := range t.Fragments() {
		if err := spaces.Apply(ctx, f); err != nil {
			status.Fragments[i].OK, status.Fragments[i].Error = false, err.Error()
			errs = append(errs, fmt.Errorf("%s: %w", f.Owner, err))
			if f.Owner == t.Node.Owner {
				status.Broken = errs[len(errs)-1]
			}
		}
	}
	return errs
}
