// SPDX-License-Identifier: Apache-2.0

package blocks

import (
	"context"
	"encoding/hex"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/netip"
	"sync"
	"time"

	"github.com/weft-net/weft/internal/cluster/store"
	"github.com/weft-net/weft/internal/model"
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
	// Cooldown is how long an address rests where its pool does not say; Idle how long an empty block is kept; Patience how long
	// an ADD waits for other nodes. 0 means the default.
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
	// MachinesKnown: Objects has every virtual machine. To one that it has not nothing is promised because a pod says so: nobody
	// would ever take that back.
	MachinesKnown bool
	// Apart: the controller is a program with rights of its own, which this node's agent lacks. It alone writes pools, deletes claims,
	// and says which nodes are gone.
	Apart bool
	// Step, which may be nil, is called before and after each thing that is done, for fault tests.
	Step func(name string) error
}

// Engine gives addresses from this node's blocks. It is safe for concurrent use.
type Engine struct {
	cfg  Config
	kick chan struct{} // something is to be tended

	unrouted sync.Once // told

	writing sync.Mutex // the journal; taken before mu
	confs   confs

	clock sync.Mutex
	last  time.Time     // what the clock said last
	back  time.Duration // how far it went back in all

	mu      sync.Mutex
	pools   map[string]*pool
	catalog catalog
	// homeless are addresses that attachments have of pools that are not known.
	homeless map[netip.Addr]holder
	// clean are the pools in which no other pool has blocks, each with the versions of all pools when that was seen.
	clean   map[string]map[string]string
	unsaved bool // the journal does not have what pools say, or whose addresses are
	// cluster are the configurations of the cluster's network that may come, in a cluster of so many nodes.
	cluster []clusterConf
	nodes   int
	missing map[string]time.Time // nodes that have no object, since when
	sent    map[string]bool      // claims that this engine made
	usurps  map[string]int       // how often a thing of ours had a claim that it did not make
	// strangers are other machines that run as this node; told are those that the journal names.
	strangers map[string]*stranger
	told      []string
	used      bool // there is something to follow
	serving   bool // somebody asked for addresses of the cluster's network
	followed  bool // the controller was asked to follow Calico's pools
	live      bool // a watch tells what other nodes have
	synced    bool
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
	e := &Engine{
		cfg: cfg, kick: make(chan struct{}, 1), pools: map[string]*pool{}, missing: map[string]time.Time{},
		sent: map[string]bool{}, usurps: map[string]int{}, strangers: map[string]*stranger{},
		catalog: newCatalog(), homeless: map[netip.Addr]holder{}, clean: map[string]map[string]string{},
	}
	return e, e.load()
}

// Held is an address that an attachment has.
type Held struct {
	Pool string
	Addr netip.Addr
	Key  model.AttachmentKey
}

// pool is the pool of that name; the caller holds the lock.
func (e *Engine) pool(name string) *pool {
	p := e.pools[name]
	if p == nil {
		p = newPool(name)
		maps.Copy(p.held, e.homeless)
		e.pools[name] = p
		e.used = true
		e.wake()
	}
	return p
}

// now is the time, which never goes back.
func (e *Engine) now() time.Time {
	e.clock.Lock()
	defer e.clock.Unlock()
	t := e.cfg.Now()
	if t.Before(e.last) {
		e.back += e.last.Sub(t)
	}
	e.last = t
	return t.Add(e.back)
}

// wake has Run look after things.
func (e *Engine) wake() {
	select {
	case e.kick <- struct{}{}:
	default:
	}
}

func (e *Engine) step(name string) error {
	if e.cfg.Step == nil {
		return nil
	}
	return e.cfg.Step(name)
}

// number is a new number for a claim.
func (e *Engine) number() (string, error) {
	var b [8]byte
	if _, err := io.ReadFull(e.cfg.Random, b[:]); err != nil {
		return "", fmt.Errorf("number for a claim: %w", err)
	}
	claim := hex.EncodeToString(b[:])
	e.sends(claim)
	return claim, nil
}

// String names the holder.
func (h holder) String() string {
	if h.key == (model.AttachmentKey{}) {
		return claimWords(h.claim)
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
		return model.Faultf(model.CodeTryAgain, "it is tried again until the machine's pod before is gone", "%s: address %s is taken by %s", w.field, w.addr, by)
	}
	return model.Faultf(model.CodeExhausted, "ask for another address, or release that one first",
		"%s: address %s is taken by %s", w.field, w.addr, by)
}
