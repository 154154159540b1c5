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
	"github.com/weft-net/weft/internal/ipam/claims"
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/notify"
)

const (
	cooldown = 10 * time.Second // how long an address rests
	idle     = time.Minute      // how long an empty block is kept
	asleep   = 10 * time.Minute // how long a spare block is kept for a pool that nobody uses
	patience = 2 * time.Second  // how long an ADD waits for other nodes to give something back
	request  = 5 * time.Second  // how long one request may take
)

// Config is an Engine's.
type Config struct {
	// Objects is where the cluster's objects are; nil: there is no cluster, and nothing can be claimed.
	Objects store.Objects
	// Node is this node's name: no other engine may use it.
	Node string
	// Machine tells this machine from another one that runs under the same name; empty where nothing does.
	Machine string
	// Dir holds the journal, for this engine alone.
	Dir    string
	Log    *slog.Logger
	Now    func() time.Time
	After  func(time.Duration) <-chan time.Time
	Random io.Reader
	// Cooldown is how long an address rests where its pool does not say; Idle how long an empty block is kept; Patience
	// how long an ADD waits for other nodes. 0 means the default.
	Cooldown, Idle, Patience time.Duration
	// Gone is for how long a Node object must have been missing for its blocks to be taken over; 0 means ten minutes.
	Gone time.Duration
	// Nodes are the nodes that have objects, as far as is known without asking; nil: it is not known.
	Nodes func() map[string]bool
	// ReadFile reads whereabouts' flat file; nil means that there is none.
	ReadFile func(string) ([]byte, error)
	// Labels are this node's labels; false: they are not known yet. Nil: it has none.
	Labels func() (map[string]string, bool)
	// Flush has the kernel forget the connections that it tracks of addresses; nil: it tracks none.
	Flush func(context.Context, []netip.Addr) error
	// Unrouted: other nodes are not told the ways to addresses of the cluster's pools. Whoever gets one hears of it, once.
	Unrouted bool
	// MachinesKnown: Objects has every virtual machine. To one that it has not nothing is promised because a pod says so:
	// nobody would ever take that back.
	MachinesKnown bool
	// Apart: the controller is a program with rights of its own, which this node's agent lacks. It alone writes pools,
	// deletes claims, and says which nodes are gone.
	Apart bool
	// Step, which may be nil, is called before and after each thing that is done, for fault tests.
	Step failpoint.Hook
}

// Engine gives addresses from this node's blocks. It is safe for concurrent use. It only builds its parts and hands
// them to each other; doc.go says what each of them does.
type Engine struct {
	cfg  Config
	kick notify.Chan // something is to be tended

	clock     *clock
	mem       *memory
	namesakes *namesakes
	journal   *journalFile
	chooser   *chooser
	registry  *registry
	requests  *requests
	claims    *addressClaims
	affinity  *affinity
	obtainer  *obtainer
	follower  *follower

	unrouted sync.Once // told
}

// Open makes an engine of what the journal of an earlier one says.
func Open(cfg Config) (*Engine, error) {
	def := func(d *time.Duration, otherwise time.Duration) {
		if *d == 0 {
			*d = otherwise
		}
	}
	def(&cfg.Cooldown, cooldown)
	def(&cfg.Idle, idle)
	def(&cfg.Patience, patience)
	def(&cfg.Gone, asleep)
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	cfg.Log = cfg.Log.With("room", "blocks")
	e := build(cfg)
	return e, e.journal.load()
}

// build makes the parts; each knows those before it, and none of those after it.
func build(config Config) *Engine {
	e := &Engine{cfg: config, kick: notify.New(), clock: &clock{read: config.Now}}
	cfg, kick, clock := &e.cfg, e.kick, e.clock
	e.mem = &memory{
		cfg: cfg, kick: kick, clock: clock, pools: map[string]*pool{}, catalog: newCatalog(),
		homeless: map[netip.Addr]holder{},
	}
	e.namesakes = &namesakes{
		cfg: cfg, kick: kick, clock: clock, sent: map[string]bool{}, usurps: map[string]int{},
		strangers: map[string]*stranger{},
	}
	e.journal = &journalFile{cfg: cfg, mem: e.mem, namesakes: e.namesakes}
	e.chooser = &chooser{cfg: cfg, kick: kick, clock: clock, mem: e.mem}
	e.registry = &registry{
		cfg: cfg, clock: clock, mem: e.mem, namesakes: e.namesakes, missing: map[string]time.Time{},
		clean: map[string]map[string]string{},
	}
	e.requests = &requests{cfg: cfg, mem: e.mem, chooser: e.chooser, registry: e.registry}
	e.claims = &addressClaims{cfg: cfg, mem: e.mem, journal: e.journal, requests: e.requests}
	e.affinity = &affinity{
		cfg: cfg, clock: clock, mem: e.mem, namesakes: e.namesakes, journal: e.journal, registry: e.registry,
		requests: e.requests,
	}
	e.obtainer = &obtainer{
		cfg: cfg, kick: kick, clock: clock, mem: e.mem, namesakes: e.namesakes, journal: e.journal, registry: e.registry,
		requests: e.requests, claims: e.claims, affinity: e.affinity,
	}
	returner := &returner{
		cfg: cfg, kick: kick, clock: clock, mem: e.mem, namesakes: e.namesakes, journal: e.journal, registry: e.registry,
		affinity: e.affinity,
	}
	e.follower = &follower{
		cfg: cfg, kick: kick, clock: clock, mem: e.mem, namesakes: e.namesakes, journal: e.journal, chooser: e.chooser,
		registry: e.registry, requests: e.requests, affinity: e.affinity, returner: returner,
	}
	return e
}

// Run claims spare blocks, gives back empty ones and answers other nodes, until ctx ends. It asks the store for nothing
// before an address of a pool has been wanted here.
func (e *Engine) Run(ctx context.Context) error { return e.follower.run(ctx) }

// Allocations are what the engine may allocate, and has allocated, now.
func (e *Engine) Allocations() Allocations { return e.mem.allocations() }

// Count counts blocks and addresses.
func (e *Engine) Count() Counts { return e.mem.count() }

// Holds tells whether this node has an address: it is in one of its blocks and not ceded, or was ceded to it.
func (e *Engine) Holds(a netip.Addr) bool { return e.mem.holds(a) }

// Held is an address that an attachment has.
type Held struct {
	Pool string
	Addr netip.Addr
	Key  model.AttachmentKey
}

// String names the holder.
func (h holder) String() string {
	if h.key == (model.AttachmentKey{}) {
		return claims.Words(h.claim)
	}
	return "interface " + h.key.IfName + " of container " + h.key.ContainerID + " (network " + h.key.Network + ")"
}

func reservedFor(r model.ReservedAddress) string {
	words := "a reservation"
	if r.For != "" {
		words = r.For
	}
	if r.By != "" {
		words += " (by " + r.By + ")"
	}
	return words
}

func taken(w want, by string) error {
	if w.machine {
		return model.Faultf(model.CodeTryAgain, "it is tried again until the machine's pod before is gone",
			"%s: address %s is taken by %s", w.field, w.addr, by)
	}
	return model.Faultf(model.CodeExhausted, "ask for another address, or release that one first",
		"%s: address %s is taken by %s", w.field, w.addr, by)
}
