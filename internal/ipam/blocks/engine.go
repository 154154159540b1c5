// SPDX-License-Identifier: Apache-2.0

package blocks

import (
	"context"
	"io"
	"log/slog"
	"net/netip"
	"sync"
	"time"

	"github.com/weft-net/weft/internal/cluster/store"
	"github.com/weft-net/weft/internal/failpoint"
	"github.com/weft-net/weft/internal/ipam/addressclaims"
	"github.com/weft-net/weft/internal/ipam/blockreport"
	"github.com/weft-net/weft/internal/ipam/claimindex"
	"github.com/weft-net/weft/internal/ipam/claims"
	"github.com/weft-net/weft/internal/ipam/duplicatenode"
	"github.com/weft-net/weft/internal/ipam/poolcatalog"
	"github.com/weft-net/weft/internal/ipam/poolconf"
	"github.com/weft-net/weft/internal/ipam/poolrequest"
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/notify"
)

const (
	cooldown       = 10 * time.Second // how long a released address is not allocated
	idle           = time.Minute      // how long an empty block is kept
	unusedTime     = 10 * time.Minute // how long a spare block is kept for an unused pool
	nodeGoneAfter  = 10 * time.Minute // how long a Node object must be missing before its blocks may be reclaimed
	waitLimit      = 2 * time.Second  // how long an ADD waits for other nodes to release addresses
	requestTimeout = 5 * time.Second  // how long one request may take
)

// Config configures an Engine.
type Config struct {
	// Objects is the datastore; nil: there is none, and nothing can be claimed.
	Objects store.Objects
	// Node is this node's name, unique in the cluster.
	Node string
	// MachineID distinguishes this host from another one that runs as the same node; empty: unknown.
	MachineID string
	// Dir has the journal of this engine.
	Dir    string
	Log    *slog.Logger
	Now    func() time.Time
	After  func(time.Duration) <-chan time.Time
	Random io.Reader
	// Cooldown is how long a released address is not allocated, unless its pool has its own; Idle how long an empty block
	// is kept; WaitLimit how long an ADD waits for other nodes. 0 means the default.
	Cooldown, Idle, WaitLimit time.Duration
	// NodeGoneAfter is how long a Node object must be missing before its blocks may be reclaimed; 0 means ten minutes.
	NodeGoneAfter time.Duration
	// Nodes returns the nodes that have objects, from a cache; nil: unknown.
	Nodes func() map[string]bool
	// ReadFile reads whereabouts' flat file; nil means that there is none.
	ReadFile func(string) ([]byte, error)
	// Labels returns this node's labels; false: they are not known yet. Nil: it has none.
	Labels func() (map[string]string, bool)
	// Flush deletes the conntrack entries of addresses; nil: there are none.
	Flush func(context.Context, []netip.Addr) error
	// Unrouted: other nodes have no routes to addresses of the cluster's pools. The first allocation logs a warning.
	Unrouted bool
	// VMsKnown: Objects has every virtual machine. Then no claim is created for a VM that has no object and that only a
	// pod names: nothing would ever delete that claim.
	VMsKnown bool
	// SeparateController: the controller runs as its own Deployment, with permissions that this node's agent lacks. It
	// alone writes pools, deletes claims, and decides which nodes are gone.
	SeparateController bool
	// Failpoint is called before and after each write, for fault tests; it may be nil.
	Failpoint failpoint.Hook
}

// Engine allocates addresses from this node's blocks. It is safe for concurrent use. It only builds its parts; doc.go
// describes them.
type Engine struct {
	cfg  Config
	kick notify.Chan // wakes the reconciler

	clock        *clock
	confs        *poolconf.Reader
	state        *nodeState
	duplicates   *duplicatenode.Detector
	journal      *journalFile
	clusterPools *clusterPools
	registry     *registry
	requests     *poolrequest.Client
	claims       *addressclaims.Claims
	affinity     *affinity
	acquirer     *acquirer
	reconciler   *reconciler

	unrouted sync.Once // warned
}

// Open creates an engine with the state in the journal.
func Open(cfg Config) (*Engine, error) {
	def := func(d *time.Duration, otherwise time.Duration) {
		if *d == 0 {
			*d = otherwise
		}
	}
	def(&cfg.Cooldown, cooldown)
	def(&cfg.Idle, idle)
	def(&cfg.WaitLimit, waitLimit)
	def(&cfg.NodeGoneAfter, nodeGoneAfter)
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	cfg.Log = cfg.Log.With("component", "blocks")
	e := build(cfg)
	return e, e.journal.load()
}

// build creates the parts; each depends only on those before it.
func build(config Config) *Engine {
	e := &Engine{cfg: config, kick: notify.New(), clock: &clock{read: config.Now}, confs: poolconf.NewReader(config.ReadFile)}
	cfg, kick, clock := &e.cfg, e.kick, e.clock
	e.state = &nodeState{
		cfg: cfg, kick: kick, clock: clock, pools: map[string]*pool{}, catalog: poolcatalog.New(cfg.Labels, cfg.Log),
		unknownPool: map[netip.Addr]holder{},
	}
	e.duplicates = duplicatenode.New(duplicatenode.Config{
		Node: cfg.Node, MachineID: cfg.MachineID, GoneAfter: cfg.NodeGoneAfter, Log: cfg.Log, Now: clock.now, Found: kick,
	})
	e.journal = &journalFile{cfg: cfg, state: e.state, duplicates: e.duplicates}
	e.clusterPools = &clusterPools{cfg: cfg, kick: kick, clock: clock, state: e.state}
	e.registry = &registry{
		cfg: cfg, clock: clock, state: e.state, duplicates: e.duplicates, missing: map[string]time.Time{},
		clean: map[string]map[string]string{},
	}
	e.requests = poolrequest.New(poolrequest.Config{
		Objects: cfg.Objects, Node: cfg.Node, Separate: cfg.SeparateController, WaitLimit: cfg.WaitLimit, After: cfg.After,
	})
	e.claims = addressclaims.New(addressclaims.Config{
		Objects: cfg.Objects, Node: cfg.Node, Allocated: e.state, Save: e.journal.save, VMsKnown: cfg.VMsKnown,
		SeparateController: cfg.SeparateController, Log: cfg.Log,
	}, e.requests)
	claimed := &claimindex.Index{}
	e.affinity = &affinity{
		cfg: cfg, clock: clock, state: e.state, duplicates: e.duplicates, journal: e.journal, registry: e.registry,
		requests: e.requests, claimed: claimed,
	}
	e.acquirer = &acquirer{
		cfg:        cfg,
		kick:       kick,
		clock:      clock,
		state:      e.state,
		duplicates: e.duplicates,
		journal:    e.journal,
		registry:   e.registry,
		requests:   e.requests,
		claims:     e.claims,
		affinity:   e.affinity,
	}
	returner := &releaser{
		cfg:        cfg,
		kick:       kick,
		clock:      clock,
		state:      e.state,
		duplicates: e.duplicates,
		journal:    e.journal,
		registry:   e.registry,
		affinity:   e.affinity,
	}
	e.reconciler = &reconciler{
		cfg:          cfg,
		kick:         kick,
		clock:        clock,
		state:        e.state,
		duplicates:   e.duplicates,
		journal:      e.journal,
		clusterPools: e.clusterPools,
		registry:     e.registry,
		requests:     e.requests,
		affinity:     e.affinity,
		claimed:      claimed,
		releaser:     returner,
	}
	return e
}

// Run claims spare blocks, releases empty ones and answers requests of other nodes, until ctx ends. It does not use the
// datastore before an address of a pool has been requested here.
func (e *Engine) Run(ctx context.Context) error { return e.reconciler.run(ctx) }

// Allocations returns what the engine may allocate from, and what it has allocated.
func (e *Engine) Allocations() blockreport.Allocations { return e.state.allocations() }

// Count counts blocks and addresses.
func (e *Engine) Count() blockreport.Counts { return e.state.count() }

// CountByPool counts blocks and addresses of each pool.
func (e *Engine) CountByPool() map[string]blockreport.Counts { return e.state.countByPool() }

// Holds reports whether this node has an address: it is in one of its blocks and not lent, or it is borrowed.
func (e *Engine) Holds(a netip.Addr) bool { return e.state.holds(a) }

// Held is an address that an attachment has.
type Held struct {
	Pool string
	Addr netip.Addr
	Key  model.AttachmentKey
}

// String describes the holder.
func (h holder) String() string {
	if h.key == (model.AttachmentKey{}) {
		return claims.Describe(h.claim)
	}
	return "interface " + h.key.IfName + " of container " + h.key.ContainerID + " (network " + h.key.Network + ")"
}

func reservedFor(r model.ReservedAddress) string {
	words := "a reservation"
	if r.Owner != "" {
		words = r.Owner
	}
	if r.Source != "" {
		words += " (by " + r.Source + ")"
	}
	return words
}

func taken(w poolconf.Want, by string) error {
	if w.VM {
		return model.Errorf(model.CodeTryAgain, "it is retried until the VM's earlier pod is gone",
			"%s: address %s is taken by %s", w.Field, w.Addr, by)
	}
	return model.Errorf(model.CodeExhausted, "ask for another address, or release that one first",
		"%s: address %s is taken by %s", w.Field, w.Addr, by)
}
