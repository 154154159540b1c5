// SPDX-License-Identifier: Apache-2.0

package blocks

import (
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/weft-net/weft/internal/cluster/store"
	"github.com/weft-net/weft/internal/model"
)

// want is one address that an attachment is to have.
type want struct {
	pool string
	// grow permits to make the pool, or to add the network to it.
	grow bool
	// network is the subnet of the addresses, spans are those of it that will do.
	network netip.Prefix
	spans   []span
	// addr, where it is valid, is the only one that will do.
	addr netip.Addr
	// claim is the IPAMClaim that addr belongs to.
	claim string
	// machine: the claim is a virtual machine's promise, and pod ("namespace/name") is the one that it is to run in.
	machine bool
	pod     string
	// alias is the network_name of the configuration.
	alias string
	// field names the place in the configuration, for messages.
	field string
	// name is id, where it was made beforehand.
	name string
}

// id tells two wants apart that are served by different addresses.
func (w want) id() string {
	if w.name != "" {
		return w.name
	}
	words := make([]string, 0, len(w.spans))
	for _, s := range w.spans {
		words = append(words, s.String())
	}
	return strings.Join(words, ",")
}

func (w want) allows(a netip.Addr) bool {
	return inSpans(w.spans, a) && (!w.addr.IsValid() || a == w.addr)
}

// holder is who has an address: an attachment, or a claim that outlives attachments, or a claim by its attachment.
type holder struct {
	key   model.AttachmentKey
	claim string // "namespace/name" of an IPAMClaim
}

// standing is how a block stands with this node.
type standing string

const (
	owned     standing = "owned"
	releasing standing = "releasing" // its return has begun; nothing is given from it
	lost      standing = "lost"      // the store says it is not ours; nothing is given from it
)

// block is what this node knows of a block of its own, or of an address that another node ceded to it.
type block struct {
	cidr   netip.Prefix
	parent netip.Prefix // of the object; cidr, but for a ceded address
	claim  string
	stands standing
	// object is the store's, as it was last seen; without a version it has not been seen since the start.
	object store.Object
	spec   model.AddressBlock
	// away are addresses that were ceded, or are about to be.
	away map[netip.Addr]bool
	// idle is since when nothing of it is held, touched when something of it was last given.
	idle, touched time.Time
	// stale: the store says something else than what was seen.
	stale bool
	// offers are since when addresses of it are offered to one node that has not taken them.
	offers map[netip.Addr]time.Time
	// dry: all of it was seen to be held, reserved or away, and nothing has become free since. It is not looked through.
	dry bool
	// pause is until when nothing of it is free, because what is not held rests.
	pause time.Time
}

func (b *block) single() bool { return b.cidr != b.parent }

// offerTime is how long an address is kept for the node that it was offered to.
const offerTime = 10 * time.Second

// learn takes over what the store says of the block; the caller holds the lock.
func (b *block) learn(o store.Object, spec model.AddressBlock, now time.Time) {
	offers := map[netip.Addr]time.Time{}
	for a, with := range spec.Ceded {
		if len(with) < 2 || !strings.HasSuffix(with, "/") {
			continue
		}
		offers[a] = now
		if since, was := b.offers[a]; was && b.spec.Ceded[a] == with {
			offers[a] = since
		}
	}
	b.object, b.spec, b.offers, b.dry, b.pause = o, spec, offers, false, time.Time{}
}

// nobodys tells whether an address that the block ceded is with nobody: free for anybody, offered in vain, or given
// back to the block's own node.
func (b *block) nobodys(a netip.Addr, with string, now time.Time) bool {
	since, offered := b.offers[a]
	return with == "" || with == b.spec.Node+"/" || offered && now.Sub(since) >= offerTime
}

// pool is what this node knows of a pool.
type pool struct {
	name     string
	turn     chan struct{} // one at a time claims
	spec     model.AddressPool
	object   store.Object // without a version the pool has not been seen
	reserved map[netip.Addr]model.ReservedAddress
	blocks   map[netip.Prefix]*block
	order    []*block                            // by address
	others   map[netip.Prefix]model.AddressBlock // as far as is known
	rivals   map[netip.Prefix]model.AddressBlock // of other pools with some of this one's addresses; nearly always none
	held     map[netip.Addr]holder
	resting  map[netip.Addr]rest
	gives    int // how often an address was given
	wants    map[string]*demand
	expected map[string]want
	hungry   int                   // calls that wait for an address
	asking   map[netip.Addr]bool   // certain addresses that another node was asked for
	looked   time.Time             // when claims were last looked for
	missed   map[netip.Addr]bool   // addresses whose claims were not found the last time
	dropped  []model.AttachmentKey // deleted, and not recorded here: another program may have reserved for them
	stale    bool                  // the store says something else of the pool than what was seen
	scarce   time.Time             // when somebody last found the pool exhausted
	full     bool                  // no block is to be had, as far as is known
	changed  chan struct{}         // closed when something is seen that may help who waits
}

// demand is a want that comes again and again.
type demand struct {
	want want
	last time.Time
	// calm: before so many addresses of the pool were given, it need not be looked whether enough are free.
	calm int
}

// unpaused bounds for how long a block is not looked through.
const unpaused = time.Minute

func newPool(name string) *pool {
	return &pool{
		name: name, turn: make(chan struct{}, 1), spec: model.AddressPool{Name: name},
		reserved: map[netip.Addr]model.ReservedAddress{}, blocks: map[netip.Prefix]*block{},
		others: map[netip.Prefix]model.AddressBlock{}, rivals: map[netip.Prefix]model.AddressBlock{},
		held: map[netip.Addr]holder{}, resting: map[netip.Addr]rest{},
		wants: map[string]*demand{}, expected: map[string]want{}, asking: map[netip.Addr]bool{},
		missed: map[netip.Addr]bool{}, changed: make(chan struct{}),
	}
}

// put adds or takes (nil) the block of a prefix.
func (p *pool) put(cidr netip.Prefix, b *block) {
	if b == nil {
		delete(p.blocks, cidr)
	} else {
		p.blocks[cidr] = b
	}
	p.order = p.order[:0]
	for _, b := range p.blocks {
		p.order = append(p.order, b)
	}
	slices.SortFunc(p.order, func(a, b *block) int { return a.cidr.Addr().Compare(b.cidr.Addr()) })
	p.tell()
}

// tell wakes who waits for a change.
func (p *pool) tell() {
	p.full = false
	close(p.changed)
	p.changed = make(chan struct{})
}

// blockOf is the block of this node, or the single address, that has an address.
func (p *pool) blockOf(a netip.Addr) *block {
	if b := p.blocks[netip.PrefixFrom(a, a.BitLen())]; b != nil && b.stands != lost {
		return b
	}
	if r, known := p.region(a); known {
		return p.blocks[netip.PrefixFrom(a, r.BlockSize).Masked()]
	}
	var of *block
	for _, b := range p.order {
		if b.cidr.Contains(a) && (of == nil || b.single()) {
			of = b
		}
	}
	return of
}

// empty tells whether nothing of a block is held, rests or is with another node.
func (p *pool) empty(b *block, now time.Time) bool {
	empty := true
	each(b.cidr, func(a netip.Addr) bool {
		_, held := p.held[a]
		if held && p.blockOf(a) == b || !p.resting[a].over(now) {
			empty = false
		}
		return empty
	})
	for a, with := range b.spec.Ceded {
		if b.cidr.Contains(a) && !b.single() && !b.nobodys(a, with, now) {
			return false
		}
	}
	return empty
}

// region is the part of the pool that an address is in.
func (p *pool) region(a netip.Addr) (model.AddressRegion, bool) {
	for _, r := range p.spec.Regions {
		if r.CIDR.Contains(a) {
			return r, true
		}
	}
	return model.AddressRegion{}, false
}

// see takes over what the store says of the pool.
func (p *pool) see(o store.Object, spec model.AddressPool, now time.Time) {
	p.object = o
	p.read(spec)
	if p.tight() {
		p.scarce = now
	}
	for _, b := range p.order {
		b.dry, b.pause = false, time.Time{}
	}
	p.tell()
}

// read takes over what a pool says.
func (p *pool) read(spec model.AddressPool) {
	p.spec = spec
	clear(p.reserved)
	for _, r := range spec.Reserved {
		p.reserved[r.Addr] = r
	}
}

// closed tells whether the pool gives nothing more to anybody.
func (p *pool) closed() bool { return p.spec.OfCluster() && (p.spec.Disabled || p.spec.Deleted) }

// tight tells whether somebody found the pool exhausted.
func (p *pool) tight() bool { return len(p.spec.Wanted) > 0 }
