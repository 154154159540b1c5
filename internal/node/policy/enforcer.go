// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/weft-net/weft/internal/cluster/store"
	"github.com/weft-net/weft/internal/kernel"
	"github.com/weft-net/weft/internal/kernel/watch"
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/plan/policy"
)

// Source tells what is there of some kinds, that this was all, and every change.
type Source interface {
	Watch(ctx context.Context, kinds ...store.Kind) (<-chan store.Event, error)
}

// Config is an Enforcer's.
type Config struct {
	// Node is this node's name.
	Node   string
	Source Source
	// Objects is where this node's interfaces are published for the others; nil publishes nothing.
	Objects store.Objects
	Host    *kernel.Conn
	// Keep leaves connections alone that a changed policy does not allow any more.
	Keep bool
	// LogGroup is the group of nflog that denied packets are told to, some of them; 0 is none.
	LogGroup uint16
	// Bridges is where bridges' settings are; "" is where the kernel has them: for tests.
	Bridges string
	// Cards is where cards are listed; "" is where the kernel lists them: for tests.
	Cards string
	// Sized, which may be nil, is told about how many pods are known when that is another number.
	Sized func(pods int)
	// Told, which may be nil, is told of things that happen to policies' objects.
	Told Teller
	// Writing, which may be nil, is called before the kernel is asked to change tables: for tests.
	Writing func(policy.Place)
	Log     *slog.Logger
	Now     func() time.Time
	// After gives a channel that fires after a while; time.After is one.
	After func(time.Duration) <-chan time.Time
}

// Enforcer keeps the kernel of one node as policies want it. It is an attach.Guard. It lets interfaces in and answers
// questions; its parts do the rest, each of which knows those above it only:
//
//	desired    what the kernel is to hold, and the lock
//	feed       takes in what the store tells
//	publisher  tells the other nodes of this node's interfaces
//	denials    logs denied packets
//	node       the node's tables, and its bridges' ports
//	pods       tables in pods' namespaces
//	writer     writes what has changed, the node's tables before those in pods
//	cutter     ends connections that policies do not allow any more
type Enforcer struct {
	cfg       *Config
	log       *slog.Logger
	desired   *desired
	feed      *feed
	publisher *publisher
	denials   *denialLog
	node      *nodeTables
	pods      *podTables
	writer    *writer
	cutter    *cutter
	counters  counters
}

// Stats is what an Enforcer counts.
type Stats struct {
	// Policies that are in force, Faulty ones among them, and Interfaces of this node.
	Policies, Faulty, Interfaces int
	// Transactions that were written, Wholes and Meddled among them, and Failures.
	Transactions, Wholes, Meddled, Failures uint64
	// Barred are ports of bridges, and macvtaps, that are closed because their policies cannot be written.
	Barred int
	// Cut are connections that were forgotten.
	Cut uint64
	// Took is how long the last transaction took, with all that it needed of the index.
	Took time.Duration
}

// New makes an Enforcer. Nothing is written before Run.
func New(c Config) *Enforcer {
	cfg, log := &c, c.Log.With("room", "policy")
	d := newDesired(cfg, log)
	denials := &denialLog{cfg: cfg, log: log, desired: d}
	node := &nodeTables{cfg: cfg, log: log, desired: d, looking: newTurn()}
	pods := &podTables{
		cfg: cfg, log: log, desired: d, denials: denials, node: node, podWrites: newTurn(),
		places: map[policy.Place]*place{}, stale: map[model.AttachmentKey]bool{},
	}
	wr := &writer{cfg: cfg, log: log, desired: d, node: node, pods: pods, writes: newTurn()}
	return &Enforcer{
		cfg: cfg, log: log, desired: d, denials: denials, node: node, pods: pods, writer: wr,
		feed: &feed{
			cfg: cfg, log: log, desired: d,
			held: map[model.PolicyKey]*model.Policy{}, published: map[string][]model.EndpointKey{},
		},
		publisher: &publisher{cfg: cfg, log: log, desired: d},
		cutter:    &cutter{cfg: cfg, log: log, desired: d, node: node, pods: pods, writer: wr},
		counters:  counters{totals: map[string]float64{}},
	}
}

// Run does the work until ctx ends. The table stays as it is then: an agent that starts again takes it over.
func (e *Enforcer) Run(ctx context.Context) error {
	defer e.pods.closePlaces()
	defer e.counters.close()
	own, err := e.Own()
	if err != nil {
		return err
	}
	meddled, err := watch.Meddled(ctx, nil, own)
	if err != nil {
		return fmt.Errorf("policy: %w", err)
	}
	parts, ctx := errgroup.WithContext(ctx)
	parts.Go(func() error { return e.feed.followPolicies(ctx) })
	parts.Go(func() error { return e.feed.followPeers(ctx) })
	parts.Go(func() error { return e.writer.keep(ctx, meddled) })
	if e.cfg.Objects != nil {
		parts.Go(func() error { return e.publisher.publish(ctx) })
	}
	if !e.cfg.Keep {
		parts.Go(func() error { return e.cutter.cutAll(ctx) })
	}
	if e.cfg.LogGroup != 0 {
		parts.Go(func() error { return e.denials.listen(ctx) })
	}
	return parts.Wait()
}

// Own is the table that is the Enforcer's alone.
func (e *Enforcer) Own() (watch.Own, error) {
	port, err := e.cfg.Host.Port()
	if err != nil {
		return watch.Own{}, fmt.Errorf("policy: %w", err)
	}
	return watch.Own{Port: port, Table: policy.TableName}, nil
}

// Stats is what was counted until now.
func (e *Enforcer) Stats() Stats {
	e.desired.mu.Lock()
	defer e.desired.mu.Unlock()
	s := e.desired.stats
	s.Policies, s.Interfaces = len(e.desired.known), len(e.desired.local)
	for _, p := range e.pods.places {
		if p.barred {
			s.Barred++
		}
	}
	for _, k := range e.desired.known {
		if k.faults != "" {
			s.Faulty++
		}
	}
	return s
}

// Known tells whether everything is known that policies go by.
func (e *Enforcer) Known() bool {
	e.desired.mu.Lock()
	defer e.desired.mu.Unlock()
	return e.desired.ready()
}
