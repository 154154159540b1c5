// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/weft-net/weft/internal/calico"
	"github.com/weft-net/weft/internal/cluster/store"
	"github.com/weft-net/weft/internal/kernel"
	"github.com/weft-net/weft/internal/kernel/watch"
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/netns"
	"github.com/weft-net/weft/internal/plan/policy"
)

// Source watches objects of some kinds: all existing ones, a sync event, and every change.
type Source interface {
	Watch(ctx context.Context, kinds ...store.Kind) (<-chan store.Event, error)
}

// Config configures an Enforcer.
type Config struct {
	// Node is this node's name.
	Node   string
	Source Source
	// Objects is the datastore in which this node's interfaces are published; nil publishes none.
	Objects store.Objects
	Host    *kernel.Conn
	// Tunnels are the mesh's: policies at host endpoints do not deny them between nodes.
	Tunnels []policy.Tunnel
	// Keep keeps connections that a changed policy does not allow any more.
	Keep bool
	// LogGroup is the nflog group to which some of the denied packets are sent; 0 is none.
	LogGroup uint16
	// Bridges is the directory of the bridges' settings; "" is the kernel's. Tests set it.
	Bridges string
	// Deletions, which may be nil, reports deleted namespaces of pods, so that nothing is kept open in them.
	Deletions *netns.Deletions
	// Cards is the directory of network devices; "" is the kernel's. Tests set it.
	Cards string
	// Programmed, which may be nil, is called when changes of objects are written to the kernel, with the time since the
	// first of them arrived.
	Programmed func(took time.Duration)
	// ConnectionsEnded, which may be nil, is called after connections were deleted from conntrack.
	ConnectionsEnded func()
	// PodCount, which may be nil, is called with the approximate number of known pods when it has changed.
	PodCount func(pods int)
	// Unsupported, which may be nil, receives the unsupported parts of policies.
	Unsupported UnsupportedReporter
	// Writing, which may be nil, is called before tables are changed. Tests set it.
	Writing func(policy.EnforcementPoint)
	Log     *slog.Logger
	Now     func() time.Time
	// After returns a channel that fires after a duration, as time.After.
	After func(time.Duration) <-chan time.Time
}

func (c *Config) connectionsEnded() {
	if c.ConnectionsEnded != nil {
		c.ConnectionsEnded()
	}
}

// Enforcer enforces policies on one node. It is an attach.PolicyHook. It admits interfaces and answers queries; its
// parts do the rest, each of which uses only those above it:
//
//	desired     the desired state of the kernel, and the lock
//	feed        reads policies and peers from the datastore
//	publisher   publishes this node's interfaces to the other nodes
//	denials     logs denied packets
//	node        the node's tables, and its bridges' ports
//	pods        tables in pods' namespaces
//	writer      writes changes, the node's tables before those in pods
//	flowRevoker ends connections that policies do not allow any more
//	flusher     ends connections of addresses whose interfaces are gone
type Enforcer struct {
	cfg         *Config
	log         *slog.Logger
	desired     *desired
	feed        *feed
	publisher   *publisher
	denials     *denialLog
	node        *nodeTables
	pods        *podTables
	writer      *writer
	flowRevoker *flowRevoker
	flusher     *flusher
	counters    counters
}

// Stats are counts for the metrics.
type Stats struct {
	// Policies that are in force, with the Faulty ones, and Interfaces of this node.
	Policies, Faulty, Interfaces int
	// Transactions that were written, with the Rewrites and those after external changes (ExternalChanges), and Failures.
	Transactions, Rewrites, ExternalChanges, Failures uint64
	// Quarantined is the number of bridge ports and macvtaps that are down because their policies could not be written.
	Quarantined int
	// Cut is the number of deleted connections.
	Cut uint64
	// Took is the duration of the last transaction, including the index's work.
	Took time.Duration
}

// New returns an Enforcer. Nothing is written before Run.
func New(c Config) *Enforcer {
	cfg, log := &c, c.Log.With("component", "policy")
	d := newDesired(cfg, log)
	denials := &denialLog{cfg: cfg, log: log, desired: d}
	node := &nodeTables{cfg: cfg, log: log, desired: d, addrsLock: newKernelLock()}
	pods := &podTables{
		cfg: cfg, log: log, desired: d, denials: denials, node: node, podWrites: newKernelLock(),
		places: map[policy.EnforcementPoint]*place{}, stale: map[model.AttachmentKey]bool{},
	}
	wr := &writer{cfg: cfg, log: log, desired: d, node: node, pods: pods, writes: newKernelLock()}
	fe := &feed{
		cfg: cfg, log: log, desired: d,
		held: map[model.PolicyKey]*model.Policy{}, published: map[string][]model.EndpointKey{},
		containers: map[string][]model.PodRef{},
	}
	fe.calico = newCalicoFeed(fe)
	return &Enforcer{
		cfg: cfg, log: log, desired: d, denials: denials, node: node, pods: pods, writer: wr,
		feed:        fe,
		publisher:   &publisher{cfg: cfg, log: log, desired: d},
		flowRevoker: &flowRevoker{cfg: cfg, log: log, desired: d, node: node, pods: pods, writer: wr},
		flusher:     newFlusher(cfg, log, d),
		counters:    counters{totals: map[string]float64{}},
	}
}

// Run enforces policies until ctx ends. Then the tables stay in force for the next agent.
func (e *Enforcer) Run(ctx context.Context) error {
	defer e.pods.closePlaces()
	defer e.counters.close()
	own, err := e.Own()
	if err != nil {
		return err
	}
	externalChanges, err := watch.ExternalChanges(ctx, nil, own)
	if err != nil {
		return fmt.Errorf("policy: %w", err)
	}
	parts, ctx := errgroup.WithContext(ctx)
	parts.Go(func() error { return e.feed.followPolicies(ctx) })
	parts.Go(func() error { return e.feed.followPeers(ctx) })
	for _, group := range calico.PolicyKinds() {
		parts.Go(func() error { return e.feed.calico.follow(ctx, group) })
	}
	parts.Go(func() error { return e.feed.calico.followAccounts(ctx) })
	parts.Go(func() error { return e.feed.calico.followSlices(ctx) })
	parts.Go(func() error { return e.writer.keep(ctx, externalChanges) })
	if e.cfg.Objects != nil {
		parts.Go(func() error { return e.publisher.publish(ctx) })
	}
	if !e.cfg.Keep {
		parts.Go(func() error { return e.flowRevoker.revokeAll(ctx) })
	}
	parts.Go(func() error { return e.flusher.run(ctx) })
	if e.cfg.LogGroup != 0 {
		parts.Go(func() error { return e.denials.listen(ctx) })
	}
	return parts.Wait()
}

// Own returns the table that only the Enforcer changes.
func (e *Enforcer) Own() (watch.Owner, error) {
	port, err := e.cfg.Host.Port()
	if err != nil {
		return watch.Owner{}, fmt.Errorf("policy: %w", err)
	}
	return watch.Owner{Port: port, Table: policy.TableName}, nil
}

// Stats returns the counts until now.
func (e *Enforcer) Stats() Stats {
	e.desired.mu.Lock()
	defer e.desired.mu.Unlock()
	s := e.desired.stats
	s.Policies, s.Interfaces = len(e.desired.known), len(e.desired.local)
	for _, p := range e.pods.places {
		if p.quarantined {
			s.Quarantined++
		}
	}
	for _, k := range e.desired.known {
		if k.unsupported != "" {
			s.Faulty++
		}
	}
	return s
}

// Known reports whether all policy inputs are synced.
func (e *Enforcer) Known() bool {
	e.desired.mu.Lock()
	defer e.desired.mu.Unlock()
	return e.desired.readyLocked()
}
