// SPDX-License-Identifier: Apache-2.0

package audit

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/weft-net/weft/internal/cluster/store"
	"github.com/weft-net/weft/internal/ipam/grants"
	"github.com/weft-net/weft/internal/ipam/poolconf"
	"github.com/weft-net/weft/internal/ipam/whereabouts"
	"github.com/weft-net/weft/internal/model"
)

// Import lists which of another program's addresses are to be reserved in which pools.
type Import struct {
	Pools []PoolImport `json:"pools"`
	// LeftOut are addresses that are not imported, each with its reason.
	LeftOut []string `json:"leftOut"`
	// Warnings are inconsistencies that an operator should check.
	Warnings []string `json:"doubts"`
}

// PoolImport is what is added to one pool, in one write.
type PoolImport struct {
	Pool string `json:"pool"`
	// Regions and Reserved are new; Had is how many of the addresses the pool knew.
	Regions  []model.AddressRegion   `json:"regions,omitempty"`
	Reserved []model.ReservedAddress `json:"reserved,omitempty"`
	Had      int                     `json:"had"`

	object store.Object
	spec   model.AddressPool
	seen   map[netip.Addr]bool // two objects may have one address
}

// importer collects what an import depends on.
type importer struct {
	foreign whereabouts.Objects
	ranges  []poolconf.Range
	pools   map[string]*PoolImport
	blocks  []model.AddressBlock
	pods    podIndex
	sizes   map[target]int // how many addresses of a target are for use
	placed  map[netip.Addr]bool
	// matched are the objects of which an address belongs somewhere, homeless the addresses that belong nowhere.
	matched   map[store.Key]bool
	unmatched []whereabouts.Allocation
	out       Import
}

// target is a network of a pool.
type target struct {
	pool    string
	network netip.Prefix
}

// largest orders targets by the size of their networks.
func largest(a, b target) int {
	return cmp.Or(a.network.Bits()-b.network.Bits(), a.network.Addr().Compare(b.network.Addr()),
		strings.Compare(a.pool, b.pool))
}

// PlanImport returns what to import from whereabouts. An invalid object is an error. readFile reads whereabouts' flat
// file on this node; nil means that there is none.
func PlanImport(ctx context.Context, objects store.Objects, readFile func(string) ([]byte, error)) (Import, error) {
	im := importer{
		pools: map[string]*PoolImport{}, pods: podIndex{}, sizes: map[target]int{}, placed: map[netip.Addr]bool{},
		matched: map[store.Key]bool{},
		out:     Import{Pools: []PoolImport{}, LeftOut: []string{}, Warnings: []string{}},
	}
	var err error
	if im.foreign, err = whereabouts.Read(ctx, whereabouts.ListerOf(objects)); err != nil {
		return im.out, err
	}
	if err := im.read(ctx, objects, readFile); err != nil {
		return im.out, err
	}
	for _, g := range im.foreign.Allocations {
		im.place(g)
	}
	im.leaveOutUnmatched()
	for _, t := range slices.SortedFunc(maps.Keys(im.sizes), largest) {
		im.pools[t.pool].enlarge(t.network, im.sizes[t])
	}
	for _, name := range slices.Sorted(maps.Keys(im.pools)) {
		if p := im.pools[name]; p.Had+len(p.Reserved) > 0 {
			slices.SortFunc(p.Reserved, func(a, b model.ReservedAddress) int { return a.Addr.Compare(b.Addr) })
			im.out.Pools = append(im.out.Pools, *p)
		}
	}
	return im.out, nil
}

// read reads pools, blocks, networks and pods.
func (im *importer) read(ctx context.Context, objects store.Objects, readFile func(string) ([]byte, error)) error {
	for _, kind := range []store.Kind{
		store.AddressPools(), store.AddressBlocks(), store.NetworkAttachments(), store.Pods(),
	} {
		all, err := store.WithTimeout(
			ctx,
			func(ctx context.Context) ([]store.Object, error) { return objects.List(ctx, kind) },
		)
		if err != nil && !errors.Is(err, store.ErrNotFound) {
			return store.Unreachable("list of "+kind.Resource, err)
		}
		for _, o := range all {
			switch kind {
			case store.AddressPools():
				spec, err := o.AddressPool()
				if err != nil {
					return err
				}
				im.pools[spec.Name] = &PoolImport{Pool: spec.Name, object: o, spec: spec}
			case store.AddressBlocks():
				if b, err := o.AddressBlock(); err == nil {
					im.blocks = append(im.blocks, b)
				}
			case store.NetworkAttachments():
				im.network(readFile, o)
			default:
				im.pods.note(o)
			}
		}
	}
	return nil
}

// network adds the ranges of a network. An ADD reports its errors; here its range may be in a file that this node does
// not have.
func (im *importer) network(readFile func(string) ([]byte, error), o store.Object) {
	n, err := o.NetworkAttachment()
	if err != nil {
		return
	}
	for _, conf := range poolconf.Plugins([]model.NetworkAttachment{n}) {
		ranges, err := poolconf.Ranges(conf, readFile)
		if err != nil {
			im.out.Warnings = append(im.out.Warnings, fmt.Sprintf("%s: its ranges are not known here: %s", o.Key, err))
		}
		im.ranges = append(im.ranges, ranges...)
	}
}

// place reserves an address in each pool that could allocate it.
func (im *importer) place(g whereabouts.Allocation) {
	if !g.Claimed && im.pods.gone(g.Owner) {
		im.leaveOut(g, "there is no such pod")
		return
	}
	targets := im.targets(g)
	if len(targets) == 0 && !im.placed[g.Addr] {
		im.unmatched = append(im.unmatched, g)
		return
	}
	im.matched[g.From] = true
	for t, size := range targets {
		if have := im.sizes[t]; have == 0 || size < have {
			im.sizes[t] = size
		}
		if im.pools[t.pool] == nil {
			im.pools[t.pool] = &PoolImport{Pool: t.pool, spec: model.AddressPool{Name: t.pool}}
		}
		im.reserve(im.pools[t.pool], g)
	}
}

// leaveOutUnmatched reports the objects without an address in any pool.
func (im *importer) leaveOutUnmatched() {
	for _, g := range im.unmatched {
		if !im.matched[g.From] {
			im.matched[g.From] = true
			im.leaveOut(g, "no IPPool and no network has that address")
		}
	}
}

// targets returns the networks that an address belongs to, with how many of their addresses are allocatable: by
// NetworkAttachmentDefinitions, or else by whereabouts' own objects.
func (im *importer) targets(g whereabouts.Allocation) map[target]int {
	out := map[target]int{}
	for _, r := range im.ranges {
		if t := (target{r.Pool, r.CIDR}); r.CIDR.Contains(g.Addr) && g.MaybeOf(r.NetworkName) &&
			(out[t] == 0 || r.Addresses < out[t]) {
			out[t] = r.Addresses
		}
	}
	if len(out) > 0 {
		return out
	}
	for _, r := range im.foreign.Ranges {
		if r.CIDR.Contains(g.Addr) && (!r.Known || g.MaybeOf(r.NetworkName)) {
			whole := poolconf.RangeOf(r.CIDR, g.NetworkName)
			return map[target]int{{whole.Pool, r.CIDR}: whole.Addresses}
		}
	}
	return nil
}

func (im *importer) leaveOut(g whereabouts.Allocation, why string) {
	im.out.LeftOut = append(im.out.LeftOut,
		fmt.Sprintf("%s: address %s of %s: %s", g.From, g.Addr, ownerOrNone(g.Owner), why))
}

func (im *importer) warn(format string, args ...any) {
	im.out.Warnings = append(im.out.Warnings, fmt.Sprintf(format, args...))
}

// reserve reserves an address in a pool, and adds warnings about contradictions.
func (im *importer) reserve(p *PoolImport, g whereabouts.Allocation) {
	if p.seen[g.Addr] {
		return
	}
	if p.seen == nil {
		p.seen = map[netip.Addr]bool{}
	}
	p.seen[g.Addr] = true
	first := !im.placed[g.Addr]
	im.placed[g.Addr] = true
	if first && !g.Claimed {
		for _, other := range im.pods.having(g.Addr) {
			if other != g.Owner {
				im.warn("%s: address %s is allocated to %s, and pod %s reports it", g.From, g.Addr, ownerOrNone(g.Owner), other)
			}
		}
		if im.pods.denies(g.Owner, g.Addr) {
			im.warn("%s: address %s is allocated to pod %s, which does not report it", g.From, g.Addr, g.Owner)
		}
	}
	if slices.ContainsFunc(p.spec.Reserved, func(r model.ReservedAddress) bool { return r.Addr == g.Addr }) {
		p.Had++
		return
	}
	for _, b := range im.blocks {
		if b.Pool == p.Pool && b.CIDR.Contains(g.Addr) {
			im.warn("%s: address %s is in block %s, which node %s claimed before: weft may have allocated it", g.From, g.Addr,
				b.CIDR, b.Node)
		}
	}
	p.Reserved = append(p.Reserved, g.ReservedAddress)
}

func ownerOrNone(s string) string {
	if s == "" {
		return "no owner"
	}
	return s
}

// enlarge adds what the pool does not have of a network, with a block size for so many addresses.
func (p *PoolImport) enlarge(network netip.Prefix, size int) {
	had := model.AddressPool{Regions: append(slices.Clone(p.spec.Regions), p.Regions...)}
	for _, cidr := range grants.Missing(had, network) {
		p.Regions = append(p.Regions, model.AddressRegion{CIDR: cidr, BlockSize: model.BlockSize(cidr, size)})
	}
}

// Apply writes each pool in one request. Running it again after an error continues where it stopped.
func (im Import) Apply(ctx context.Context, objects store.Objects) error {
	for _, p := range im.Pools {
		if len(p.Regions)+len(p.Reserved) == 0 {
			continue
		}
		spec := p.spec
		spec.Regions = append(slices.Clone(spec.Regions), p.Regions...)
		spec.Reserved = append(slices.Clone(spec.Reserved), p.Reserved...)
		next, err := store.AddressPoolObject(p.object, spec)
		if err != nil {
			return err
		}
		_, err = store.WithTimeout(ctx, func(ctx context.Context) (store.Object, error) {
			if p.object.Version == "" {
				return objects.Create(ctx, store.AddressPools(), next)
			}
			return objects.CompareAndSwap(ctx, store.AddressPools(), p.object.Version, next)
		})
		switch {
		case errors.Is(err, store.ErrExists), errors.Is(err, store.ErrConflict):
			return model.Errorf(model.CodeTryAgain, "run it again: it continues where it stopped",
				"pool %q was changed meanwhile: %w", p.Pool, err)
		case errors.Is(err, store.ErrNotFound):
			return model.Errorf(model.CodeNotAvailable, "install the definitions of deploy/crds first",
				"pool %q cannot be written: %w", p.Pool, err)
		case err != nil:
			return fmt.Errorf("pool %q: %w", p.Pool, err)
		}
	}
	return nil
}
