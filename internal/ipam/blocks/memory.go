// SPDX-License-Identifier: Apache-2.0

package blocks

import (
	"maps"
	"net/netip"
	"slices"
	"sync"

	"github.com/weft-net/weft/internal/cluster/store"
	"github.com/weft-net/weft/internal/ipam/claims"
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/notify"
)

// memory is what this node knows of pools and has given of its own blocks: an ADD is served from it alone. It asks no
// store and writes no file. Who reads or changes a pool or a block holds its lock.
type memory struct {
	cfg   *Config
	kick  notify.Chan
	clock *clock

	mu      sync.Mutex
	pools   map[string]*pool
	catalog catalog
	// homeless are addresses that attachments have of pools that are not known.
	homeless map[netip.Addr]holder
	unsaved  bool // the journal does not have what pools say, or whose addresses are
	used     bool // there is something to follow
	live     bool // a watch tells what other nodes have
	synced   bool // what the store had at the start of the watch has been taken in
}

// pool is the pool of that name; the caller holds the lock.
func (m *memory) pool(name string) *pool {
	p := m.pools[name]
	if p == nil {
		p = newPool(name)
		maps.Copy(p.held, m.homeless)
		m.pools[name] = p
		m.used = true
		m.kick.Notify()
	}
	return p
}

// heldBy finds addresses by their holders: among some, or all when these are none.
func (m *memory) heldBy(is func(holder, netip.Addr) bool, among []netip.Addr) map[string][]netip.Addr {
	m.mu.Lock()
	defer m.mu.Unlock()
	out := map[string][]netip.Addr{}
	for name, p := range m.pools {
		for _, a := range among {
			if h, held := p.held[a]; held && is(h, a) {
				out[name] = append(out[name], a)
			}
		}
		if len(among) > 0 {
			continue
		}
		for a, h := range p.held {
			if is(h, a) {
				out[name] = append(out[name], a)
			}
		}
	}
	return out
}

// holds tells whether this node has an address: it is in one of its blocks and not ceded, or was ceded to it.
func (m *memory) holds(a netip.Addr) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, p := range m.pools {
		if b := p.blockOf(a); b != nil && b.cidr.Contains(a) && b.stands == owned && !b.away[a] {
			return true
		}
	}
	return false
}

// count counts blocks and addresses.
func (m *memory) count() Counts {
	m.mu.Lock()
	defer m.mu.Unlock()
	var c Counts
	now := m.clock.now()
	for _, p := range m.pools {
		c.Held += len(p.held)
		for _, b := range p.order {
			if b.stands != lost {
				c.Blocks++
			}
			each(b.cidr, func(a netip.Addr) bool {
				if p.free(b, a, now, false) {
					c.Free++
				}
				return true
			})
		}
	}
	return c
}

// allocations are what the engine may allocate, and has allocated, now.
func (m *memory) allocations() Allocations {
	m.mu.Lock()
	defer m.mu.Unlock()
	g := Allocations{Node: m.cfg.Node, Blocks: []netip.Prefix{}, Held: []HeldAddress{}}
	for _, p := range m.pools {
		for _, b := range p.order {
			if b.stands == owned {
				g.Blocks = append(g.Blocks, b.cidr)
			}
		}
		for a, h := range p.held {
			g.Held = append(g.Held, HeldAddress{p.name, a, h.key, h.claim})
		}
	}
	slices.SortFunc(g.Blocks, func(a, b netip.Prefix) int { return a.Addr().Compare(b.Addr()) })
	slices.SortFunc(g.Held, func(a, b HeldAddress) int { return a.Addr.Compare(b.Addr) })
	return g
}

// ownBlocks are the whole blocks of this node.
func (m *memory) ownBlocks(p *pool) []*block {
	m.mu.Lock()
	defer m.mu.Unlock()
	var out []*block
	for _, b := range p.order {
		if !b.single() {
			out = append(out, b)
		}
	}
	return out
}

// ceded takes over a block that was just written, with exactly what is ceded now.
func (m *memory) ceded(b *block, o store.Object, spec model.AddressBlock) {
	m.mu.Lock()
	defer m.mu.Unlock()
	b.learn(o, spec, m.clock.now())
	clear(b.away)
	for a := range spec.Ceded {
		b.away[a] = true
	}
}

// isHeld tells whether somebody here has an address.
func (m *memory) isHeld(p *pool, a netip.Addr) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	_, held := p.held[a]
	return held
}

// unheld are the addresses that nobody has.
func (m *memory) unheld(cidrs ...netip.Prefix) (out []netip.Addr) {
	m.mu.Lock()
	defer m.mu.Unlock()
	held := map[netip.Addr]bool{}
	for _, p := range m.pools {
		for a := range p.held {
			held[a] = true
		}
	}
	for _, cidr := range cidrs {
		each(cidr, func(a netip.Addr) bool {
			if !held[a] {
				out = append(out, a)
			}
			return true
		})
	}
	return out
}

// home finds the pools that an address may be of: those that have a block of it here, else all of the cluster's
// network, because people may have pools overlap, and move addresses from one to another. One that holds what is
// another's gives it to nobody, and rests it when it is freed. Where no block is known, or no pool, it is not given
// whatever pool is met.
func (m *memory) home(a netip.Addr, key model.AttachmentKey) []Held {
	m.mu.Lock()
	defer m.mu.Unlock()
	var having, could, all []Held
	for name, p := range m.pools {
		h := Held{name, a, key}
		all = append(all, h)
		if !p.spec.OfCluster() {
			continue
		}
		could = append(could, h)
		if p.blockOf(a) != nil {
			having = append(having, h)
		}
	}
	if len(having) > 0 {
		return having
	}
	m.homeless[a] = holder{key: key}
	if len(could) > 0 {
		return could
	}
	return all
}

func (m *memory) restore(held []Held) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, h := range held {
		was := m.pool(h.Pool).held[h.Addr]
		m.pool(h.Pool).held[h.Addr] = holder{h.Key, was.claim}
	}
}

// settle forgets that attachments have addresses of unknown pools.
func (m *memory) settle(gone func(holder) bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	maps.DeleteFunc(m.homeless, func(_ netip.Addr, h holder) bool { return gone(h) })
}

// mark notes whose an address is, that was just seen to be promised: an earlier promise, of which this node has not
// heard yet that it is over, does not count. The journal does not have it yet.
func (m *memory) mark(p *pool, a netip.Addr, claim string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	h := p.held[a]
	if h.claim == claim || h.claim != "" && h.key != (model.AttachmentKey{}) {
		return
	}
	h.claim = claim
	p.held[a] = h
	m.unsaved = true
}

// see takes over what the store says of a pool; the caller holds the lock.
func (m *memory) see(p *pool, o store.Object, spec model.AddressPool) {
	m.unsaved = true
	if spec.OfCluster() && !slices.Equal(p.spec.Regions, spec.Regions) {
		m.synced = false // another pool may have blocks of what is new
		m.kick.Notify()
	}
	m.catalog.put(spec)
	p.see(o, spec, m.clock.now())
}

// hearPool notes what happened to a pool; the caller holds the lock.
func (m *memory) hearPool(ev store.Event) (news bool) {
	name := ev.Object.Key.Name
	if ev.Type == store.Deleted {
		m.catalog.drop(name)
		m.unsaved = true
		return true
	}
	if m.catalog.told != nil {
		m.catalog.told[name] = true
	}
	spec, err := ev.Object.AddressPool()
	if err != nil {
		return false // it stays what it was
	}
	news = m.catalog.put(spec)
	m.unsaved = m.unsaved || news
	return news
}

func (m *memory) inUse() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.used
}

func (m *memory) setLive(live bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.live = live
}

// asks is what this node writes to ask for a certain address.
func (m *memory) asks(w want) string {
	if w.claim == "" {
		return m.cfg.Node
	}
	return m.cfg.Node + claims.For + w.claim
}

// hungry tells whether this node is one of those that found the pool exhausted.
func (m *memory) hungry(p *pool) bool { return slices.Contains(p.spec.Wanted, m.cfg.Node) }
