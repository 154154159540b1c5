// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
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

// Enforcer keeps the kernel of one node as policies want it. It is an attach.Guard.
type Enforcer struct {
	cfg   Config
	log   *slog.Logger
	due   chan struct{} // holds a token while there may be something to write
	peers chan struct{} // closed when the peers are to be followed
	news  chan struct{} // holds a token while there is something to publish
	judge chan struct{} // holds a token while connections are to be looked at

	// writes is the turn of who writes the node's tables, podWrites of who writes those in pods: in this order where both
	// are. looking is the turn of who looks at the node's own addresses.
	writes, podWrites, looking turn
	counters                   counters

	// mu guards all below. It is not held while the kernel is asked for what may take long: who has it waits for nobody.
	mu    sync.Mutex
	index *policy.Index
	// told: policies and namespaces are known; met: so are the peers.
	told, met, asked bool
	// held are policies that came before the peers were known; nil for a deleted one.
	held map[model.PolicyKey]*model.Policy
	// known are all policies, by what they could be about: namespaces; "" is the whole cluster.
	known map[model.PolicyKey]known
	about map[string]int
	// pods are those of this node, published the interfaces of others.
	pods      map[model.PodRef]identity // by namespace and name
	published map[string][]model.EndpointKey
	local     map[model.AttachmentKey]*local
	places    map[policy.Place]*place
	// stale are interfaces at ports in whose pods an earlier agent may have left a table; true where that it cannot be
	// removed was logged.
	stale map[model.AttachmentKey]bool
	// ported: something is judged at bridges' ports. blind: it was said that they do not show connections. bridges: what
	// is at their ports is not known to be right.
	ported, blind bool
	bridges       error
	unwritten     string // what was said of it
	// unbarred: no port is known to be closed because of that.
	unbarred bool
	// right: the kernel holds what the index last said. doubts counts how often that was doubted, batch how often its
	// changes were taken.
	right         bool
	doubts, batch uint64
	// looked is when the node's own addresses were looked at.
	looked  time.Time
	waiters map[chan struct{}]bool
	stats   Stats
	// crowd is how many pods there are, sized how many Sized was told of.
	crowd, sized int
	cuts         []scar
}

// known is what is remembered of a policy beside what the index knows.
type known struct {
	faults string
}

// identity is how a pod of this node is told from others of its name.
type identity struct{ uid, hash string }

// local is one of this node's endpoints, as the index has it: of a pod that is known it has the UID of the API.
type local struct {
	model.WorkloadEndpoint
	pod  model.PodRef // as the runtime names it
	done bool         // its ADD is
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
func New(cfg Config) *Enforcer {
	return &Enforcer{
		cfg: cfg, log: cfg.Log.With("room", "policy"), due: make(chan struct{}, 1), peers: make(chan struct{}),
		news:  make(chan struct{}, 1),
		judge: make(chan struct{}, 1), index: policy.New(policy.Config{Node: cfg.Node, LogGroup: int(cfg.LogGroup)}),
		writes: newTurn(), podWrites: newTurn(), looking: newTurn(), counters: counters{totals: map[string]float64{}},
		held: map[model.PolicyKey]*model.Policy{}, known: map[model.PolicyKey]known{}, about: map[string]int{},
		pods: map[model.PodRef]identity{}, published: map[string][]model.EndpointKey{},
		local:  map[model.AttachmentKey]*local{},
		places: map[policy.Place]*place{}, stale: map[model.AttachmentKey]bool{}, waiters: map[chan struct{}]bool{},
	}
}

// Run does the work until ctx ends. The table stays as it is then: an agent that starts again takes it over.
func (e *Enforcer) Run(ctx context.Context) error {
	defer e.closePlaces()
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
	parts.Go(func() error { return e.followPolicies(ctx) })
	parts.Go(func() error { return e.followPeers(ctx) })
	parts.Go(func() error { return e.keep(ctx, meddled) })
	if e.cfg.Objects != nil {
		parts.Go(func() error { return e.publish(ctx) })
	}
	if !e.cfg.Keep {
		parts.Go(func() error { return e.cutAll(ctx) })
	}
	if e.cfg.LogGroup != 0 {
		parts.Go(func() error { return e.listen(ctx) })
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
	e.mu.Lock()
	defer e.mu.Unlock()
	s := e.stats
	s.Policies, s.Interfaces = len(e.known), len(e.local)
	for _, p := range e.places {
		if p.barred {
			s.Barred++
		}
	}
	for _, k := range e.known {
		if k.faults != "" {
			s.Faulty++
		}
	}
	return s
}

// Known tells whether everything is known that policies go by.
func (e *Enforcer) Known() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.ready()
}

// ready tells whether what the index says may be written: all is known that it needs. The lock is held.
func (e *Enforcer) ready() bool { return e.told && (e.met || len(e.known) == 0) }

// token puts one into a channel that holds one.
func token(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// changed has those look again who wait for something to be known. The lock is held.
func (e *Enforcer) changed() {
	for w := range e.waiters {
		token(w)
	}
}

// await waits until something is true, which is asked with the lock held; false when it is not in time.
func (e *Enforcer) await(ctx context.Context, limit time.Duration, is func() bool) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if is() {
		return true
	}
	w := make(chan struct{}, 1)
	e.waiters[w] = true
	defer delete(e.waiters, w)
	late := e.cfg.After(limit)
	for !is() {
		e.mu.Unlock()
		select {
		case <-w:
			e.mu.Lock()
			continue
		case <-late:
		case <-ctx.Done():
		}
		e.mu.Lock()
		return is()
	}
	return true
}
