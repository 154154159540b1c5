// SPDX-License-Identifier: Apache-2.0

package blocks

import (
	"maps"
	"net/netip"
	"slices"
	"sync"

	"github.com/weft-net/weft/internal/cluster/store"
	"github.com/weft-net/weft/internal/ipam/addrspan"
	"github.com/weft-net/weft/internal/ipam/blockreport"
	"github.com/weft-net/weft/internal/ipam/claims"
	"github.com/weft-net/weft/internal/ipam/poolcatalog"
	"github.com/weft-net/weft/internal/ipam/poolconf"
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/notify"
)

// nodeState has this node's pools, blocks and allocations: an ADD is served from it alone. It uses neither the
// datastore nor files. Its mutex protects all pools and blocks.
type nodeState struct {
	cfg   *Config
	kick  notify.Chan
	clock *clock

	mu      sync.Mutex
	pools   map[string]*pool
	catalog *poolcatalog.Catalog
	// unknownPool are the addresses of attachments whose pool is not known.
	unknownPool map[netip.Addr]holder
	unsaved     bool // the journal is out of date
	used        bool // a pool is in use
	watching    bool // a watch keeps the blocks of other nodes current
	synced      bool // all pools have been compared with the datastore since the watch began
}

// poolLocked returns the pool of that name; it creates its state if needed.
func (m *nodeState) poolLocked(name string) *pool {
	p := m.pools[name]
	if p == nil {
		p = newPool(name)
		maps.Copy(p.held, m.unknownPool)
		m.pools[name] = p
		m.used = true
		m.kick.Notify()
	}
	return p
}

// heldBy returns the addresses whose holder matches, by pool: of among, or of all if that is empty.
func (m *nodeState) heldBy(is func(holder, netip.Addr) bool, among []netip.Addr) map[string][]netip.Addr {
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

// holds reports whether this node has an address: it is in one of its blocks and not lent, or it is borrowed.
func (m *nodeState) holds(a netip.Addr) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, p := range m.pools {
		if b := p.blockOf(a); b != nil && b.cidr.Contains(a) && b.state == owned && !b.lent[a] {
			return true
		}
	}
	return false
}

// count counts blocks and addresses.
func (m *nodeState) count() blockreport.Counts {
	var all blockreport.Counts
	for _, c := range m.countByPool() {
		all.Blocks, all.Free, all.Held = all.Blocks+c.Blocks, all.Free+c.Free, all.Held+c.Held
	}
	return all
}

// countByPool counts the blocks and addresses of each pool.
func (m *nodeState) countByPool() map[string]blockreport.Counts {
	m.mu.Lock()
	defer m.mu.Unlock()
	out := map[string]blockreport.Counts{}
	now := m.clock.now()
	for _, p := range m.pools {
		c := blockreport.Counts{Held: len(p.held)}
		for _, b := range p.order {
			if b.state != lost {
				c.Blocks++
			}
			addrspan.Each(b.cidr, func(a netip.Addr) bool {
				if p.free(b, a, now, false) {
					c.Free++
				}
				return true
			})
		}
		out[p.name] = c
	}
	return out
}

// allocations returns what the engine may allocate from, and what it has allocated.
func (m *nodeState) allocations() blockreport.Allocations {
	m.mu.Lock()
	defer m.mu.Unlock()
	g := blockreport.Allocations{Node: m.cfg.Node, Blocks: []netip.Prefix{}, Held: []blockreport.HeldAddress{}}
	for _, p := range m.pools {
		for _, b := range p.order {
			if b.state == owned {
				g.Blocks = append(g.Blocks, b.cidr)
			}
		}
		for a, h := range p.held {
			g.Held = append(g.Held, blockreport.HeldAddress{
				Pool: p.name, Addr: a, AttachmentKey: h.key, Claim: h.claim,
			})
		}
	}
	slices.SortFunc(g.Blocks, func(a, b netip.Prefix) int { return a.Addr().Compare(b.Addr()) })
	slices.SortFunc(g.Held, func(a, b blockreport.HeldAddress) int { return a.Addr.Compare(b.Addr) })
	return g
}

// ownBlocks returns the blocks of this node, without borrowed addresses.
func (m *nodeState) ownBlocks(p *pool) []*block {
	m.mu.Lock()
	defer m.mu.Unlock()
	var out []*block
	for _, b := range p.order {
		if !b.borrowed() {
			out = append(out, b)
		}
	}
	return out
}

// setLent sets a block's object after a write, and its lent addresses.
func (m *nodeState) setLent(b *block, o store.Object, spec model.AddressBlock) {
	m.mu.Lock()
	defer m.mu.Unlock()
	b.updateLocked(o, spec, m.clock.now())
	clear(b.lent)
	for a := range spec.Lent {
		b.lent[a] = true
	}
}

// isHeld reports whether an address is allocated on this node.
func (m *nodeState) isHeld(p *pool, a netip.Addr) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	_, held := p.held[a]
	return held
}

// unheld returns the addresses of some prefixes that are not allocated on this node.
func (m *nodeState) unheld(cidrs ...netip.Prefix) (out []netip.Addr) {
	m.mu.Lock()
	defer m.mu.Unlock()
	held := map[netip.Addr]bool{}
	for _, p := range m.pools {
		for a := range p.held {
			held[a] = true
		}
	}
	for _, cidr := range cidrs {
		addrspan.Each(cidr, func(a netip.Addr) bool {
			if !held[a] {
				out = append(out, a)
			}
			return true
		})
	}
	return out
}

// poolsOf returns the pools that an address may be of: those with a block of it on this node, else all of the cluster's
// network, because users may move addresses from one pool to another. Each of them keeps the address allocated. Where
// no block is known, it also counts as allocated in every pool that becomes known later.
func (m *nodeState) poolsOf(a netip.Addr, key model.AttachmentKey) []Held {
	m.mu.Lock()
	defer m.mu.Unlock()
	var having, could, all []Held
	for name, p := range m.pools {
		h := Held{name, a, key}
		all = append(all, h)
		if !p.spec.IsClusterPool() {
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
	m.unknownPool[a] = holder{key: key}
	if len(could) > 0 {
		return could
	}
	return all
}

func (m *nodeState) restore(held []Held) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, h := range held {
		was := m.poolLocked(h.Pool).held[h.Addr]
		m.poolLocked(h.Pool).held[h.Addr] = holder{h.Key, was.claim}
	}
}

// forgetUnknown removes attachments from the addresses of unknown pools.
func (m *nodeState) forgetUnknown(gone func(holder) bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	maps.DeleteFunc(m.unknownPool, func(_ netip.Addr, h holder) bool { return gone(h) })
}

// markClaim records the claim that owns an address. It replaces an earlier claim, whose end this node may not have seen
// yet. It does not write the journal.
func (m *nodeState) markClaim(p *pool, a netip.Addr, claim string) {
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

// updatePoolLocked sets a pool's object.
func (m *nodeState) updatePoolLocked(p *pool, o store.Object, spec model.AddressPool) {
	m.unsaved = true
	if spec.IsClusterPool() && !slices.Equal(p.spec.Regions, spec.Regions) {
		m.synced = false // another pool may have blocks in the new regions
		m.kick.Notify()
	}
	m.catalog.Put(spec)
	p.updateLocked(o, spec, m.clock.now())
}

// handlePoolEventLocked applies an event of a pool, and reports whether the choice of pools changed.
func (m *nodeState) handlePoolEventLocked(ev store.Event) (changed bool) {
	changed = m.catalog.HandleEvent(ev)
	m.unsaved = m.unsaved || changed
	return changed
}

func (m *nodeState) inUse() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.used
}

// isWatching reports whether a watch keeps the blocks of other nodes current.
func (m *nodeState) isWatching() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.watching
}

func (m *nodeState) setWatching(live bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.watching = live
}

// requester returns what this node writes into a block's object to request a specific address.
func (m *nodeState) requester(w poolconf.Want) string {
	if w.Claim == "" {
		return m.cfg.Node
	}
	return m.cfg.Node + claims.EntrySeparator + w.Claim
}

// needsAddresses reports whether the pool is reported as exhausted on this node.
func (m *nodeState) needsAddresses(p *pool) bool {
	return slices.Contains(p.spec.ExhaustedOn, m.cfg.Node)
}

// KeptFor returns the addresses of a claim that no attachment of this node uses.
func (m *nodeState) KeptFor(claim string) (out []netip.Addr) {
	for _, addrs := range m.heldBy(func(h holder, _ netip.Addr) bool { return h == holder{claim: claim} }, nil) {
		out = append(out, addrs...)
	}
	return out
}

// NotAllocated returns one of some addresses that is in a block of this node, and not allocated to the claim; false:
// there is none.
func (m *nodeState) NotAllocated(addrs []netip.Addr, claim string) (netip.Addr, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, a := range addrs {
		for _, p := range m.pools {
			if b := p.blockOf(a); b != nil && b.cidr.Contains(a) && b.state == owned && !b.lent[a] && p.held[a].claim != claim {
				return a, true
			}
		}
	}
	return netip.Addr{}, false
}
