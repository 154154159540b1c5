// SPDX-License-Identifier: Apache-2.0

package blocks

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/netip"
	"sync"
	"time"

	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/store"
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
	// Step, which may be nil, is called before and after each thing that is done, for fault tests.
	Step func(name string) error
}

// Engine gives addresses from this node's blocks. It is safe for concurrent use.
type Engine struct {
	cfg  Config
	kick chan struct{} // something is to be tended

	writing sync.Mutex // the journal; taken before mu

	mu      sync.Mutex
	pools   map[string]*pool
	missing map[string]time.Time // nodes that have no object, since when
	sent    map[string]bool      // claims that this engine made
	usurps  map[string]int       // how often a thing of ours had a claim that it did not make
	// strangers are other machines that run as this node; told are those that the journal names.
	strangers map[string]*stranger
	told      []string
	used      bool // there is something to follow
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
	}
	return e, e.load()
}

// Held is an address that an attachment has.
type Held struct {
	Pool string
	Addr netip.Addr
	Key  model.AttachmentKey
}

func (e *Engine) restore(held []Held) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, h := range held {
		was := e.pool(h.Pool).held[h.Addr]
		e.pool(h.Pool).held[h.Addr] = holder{h.Key, was.claim}
	}
}

// pool is the pool of that name; the caller holds the lock.
func (e *Engine) pool(name string) *pool {
	p := e.pools[name]
	if p == nil {
		p = newPool(name)
		e.pools[name] = p
		e.used = true
		e.wake()
	}
	return p
}

// take gives an address, out of memory where that is possible.
func (e *Engine) take(ctx context.Context, w want, h holder) (netip.Addr, error) {
	if a, ok, err := e.fromMemory(w, h, false); ok || err != nil {
		return a, err
	}
	a, err := e.obtain(ctx, w, h)
	if errors.Is(err, errSilent) {
		// Better an address that rests than none.
		if rested, ok, tooErr := e.fromMemory(w, h, true); ok || tooErr != nil {
			return rested, tooErr
		}
		err = model.Faultf(model.CodeTryAgain, "", "%s: no address of this node's own blocks is free; %w", w.field, err)
	}
	return a, err
}

// fromMemory gives an address of this node's blocks. Nobody is asked.
func (e *Engine) fromMemory(w want, h holder, tired bool) (netip.Addr, bool, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	p, now := e.pool(w.pool), e.cfg.Now()
	if !w.addr.IsValid() {
		p.wants[w.id()] = &demand{w, now}
	}
	if was, held := p.held[w.addr]; held && w.addr.IsValid() {
		if h.claim == "" || was.claim != h.claim || was.key != (model.AttachmentKey{}) {
			return netip.Addr{}, false, taken(w, was.String())
		}
		if b := p.blockOf(w.addr); b == nil || b.stands != owned || b.away[w.addr] {
			return netip.Addr{}, false, nil // it is where the claim was used last
		}
		p.held[w.addr] = h // the claim's own address, which nobody used just now
		return w.addr, true, nil
	}
	if r, is := p.reserved[w.addr]; is && w.addr.IsValid() {
		return netip.Addr{}, false, taken(w, reservedFor(r))
	}
	a, ok := p.pick(w, now, tired || w.addr.IsValid())
	if !ok {
		return a, false, nil
	}
	p.give(a, h, now)
	if !w.addr.IsValid() && !p.spare(w, now, nil, e.spareOf(p, w)) {
		e.wake()
	}
	return a, true, nil
}

// spareOf is how many free addresses are held ready for a want: a block's worth.
func (e *Engine) spareOf(p *pool, w want) int {
	if len(w.spans) == 0 || p.tight() {
		return 0
	}
	r, ok := p.region(w.spans[0].from)
	if !ok {
		return 1
	}
	return 1 << (r.CIDR.Addr().BitLen() - r.BlockSize)
}

// free lets an address rest that the holder has. A claim keeps its own.
func (e *Engine) free(poolName string, a netip.Addr, key model.AttachmentKey) {
	e.mu.Lock()
	defer e.mu.Unlock()
	p := e.pools[poolName]
	if p == nil || p.held[a].key != key {
		return
	}
	if claim := p.held[a].claim; claim != "" {
		p.held[a] = holder{claim: claim}
		e.wake()
		return
	}
	e.rest(p, a)
}

// rest takes an address from its holder; the caller holds the lock.
func (e *Engine) rest(p *pool, a netip.Addr) {
	delete(p.held, a)
	if b := p.blockOf(a); b != nil {
		b.dry = false
	}
	now := e.cfg.Now()
	for b, until := range p.resting {
		if !now.Before(until) {
			delete(p.resting, b)
		}
	}
	long := e.cfg.Cooldown
	if p.spec.Cooldown > 0 {
		long = time.Duration(p.spec.Cooldown) * time.Second
	}
	p.resting[a] = now.Add(long)
	e.wake()
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
		return "IPAMClaim " + h.claim
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
	return model.Faultf(model.CodeExhausted, "ask for another address, or release that one first",
		"%s: address %s is taken by %s", w.field, w.addr, by)
}
