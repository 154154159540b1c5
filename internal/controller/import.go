// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"cmp"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/weft-net/weft/internal/cluster/store"
	"github.com/weft-net/weft/internal/ipam/audit"
	"github.com/weft-net/weft/internal/model"
)

// Import is a plan to take over addresses of another IPAM plugin: pods keep their addresses and stay reachable.
type Import struct {
	Pools []PoolImport `json:"pools"`
	// Blocks are claimed for the nodes of these pods, so that they are reachable.
	Blocks []model.AddressBlock `json:"blocks"`
	// Skipped are addresses that are not taken over, each with its reason; Warnings need the operator's attention.
	Skipped  []string `json:"leftOut"`
	Warnings []string `json:"doubts"`
}

// Independent returns the plan with pools that do not follow those of the other IPAM plugin.
func (i Import) Independent() Import {
	i.Pools = slices.Clone(i.Pools)
	for k := range i.Pools {
		i.Pools[k].from = ""
	}
	return i
}

// PoolImport is the import into one pool, in one write.
type PoolImport struct {
	Pool string `json:"pool"`
	// New: the pool is created.
	New bool `json:"new,omitempty"`
	// Regions and Reserved are added; Existing is how many of the addresses were in the pool already.
	Regions  []model.AddressRegion   `json:"regions,omitempty"`
	Reserved []model.ReservedAddress `json:"reserved,omitempty"`
	Existing int                     `json:"had"`

	object store.Object
	spec   model.AddressPool
	from   string
}

// importer builds an Import.
type importer struct {
	state      *poolState
	pods       audit.Pods
	nodes      map[string]bool
	random     io.Reader
	pools      map[string]*PoolImport
	claims     map[netip.Prefix]*model.AddressBlock
	blockNames map[string]bool // names of existing blocks
	out        Import
}

// newImporter reads pools, blocks, nodes and pods. Without random no blocks are claimed.
func newImporter(ctx context.Context, objects store.Objects, random io.Reader) (*importer, error) {
	s, err := readPools(ctx, objects, time.Time{})
	if err != nil {
		return nil, err
	}
	im := &importer{
		state: s, nodes: map[string]bool{}, random: random, pools: map[string]*PoolImport{},
		claims: map[netip.Prefix]*model.AddressBlock{}, blockNames: map[string]bool{},
		out: Import{Pools: []PoolImport{}, Blocks: []model.AddressBlock{}, Skipped: []string{}, Warnings: []string{}},
	}
	for _, name := range s.names() {
		if err := s.invalid[name]; err != nil {
			return nil, err
		}
		if spec := s.specs[name]; spec.IsClusterPool() {
			im.pools[name] = &PoolImport{Pool: name, object: s.pools[name], spec: spec}
		}
	}
	for _, b := range s.blocks {
		im.blockNames[store.BlockName(b.Pool, b.CIDR)] = true
	}
	nodes, err := list(ctx, objects, store.Nodes())
	if err != nil {
		return nil, err
	}
	for _, o := range nodes {
		im.nodes[o.Key.Name] = true
	}
	im.pods, err = audit.ReadPods(ctx, objects)
	return im, err
}

// pool returns the pool that has an address, with its region.
func (im *importer) pool(a netip.Addr) (*PoolImport, model.AddressRegion) {
	var specs []model.AddressPool
	for _, p := range im.pools {
		specs = append(specs, p.spec)
	}
	slices.SortFunc(specs, func(a, b model.AddressPool) int {
		return cmp.Or(cmp.Compare(a.Created, b.Created), strings.Compare(a.Name, b.Name))
	})
	for _, spec := range specs {
		for _, r := range spec.Regions {
			if r.CIDR.Contains(a) {
				return im.pools[spec.Name], r
			}
		}
	}
	return nil, model.AddressRegion{}
}

func (im *importer) skip(from string, a netip.Addr, format string, args ...any) {
	im.out.Skipped = append(im.out.Skipped, fmt.Sprintf("%s: address %s: %s", from, a, fmt.Sprintf(format, args...)))
}

func (im *importer) warn(format string, args ...any) {
	im.out.Warnings = append(im.out.Warnings, fmt.Sprintf(format, args...))
}

// reserve reserves an address and claims its block for its node; from is the source for messages.
func (im *importer) reserve(from, node string, r model.ReservedAddress) error {
	p, region := im.pool(r.Addr)
	if p == nil {
		im.skip(from, r.Addr, "no pool of the cluster's network has it")
		return nil
	}
	if slices.ContainsFunc(p.spec.Reserved, func(have model.ReservedAddress) bool { return have.Addr == r.Addr }) {
		p.Existing++
	} else if !slices.ContainsFunc(p.Reserved, func(have model.ReservedAddress) bool { return have.Addr == r.Addr }) {
		p.Reserved = append(p.Reserved, r)
	}
	if node == "" || im.random == nil {
		return nil
	}
	if len(im.nodes) > 0 && !im.nodes[node] {
		im.warn("%s: address %s is on node %q, and there is no such node", from, r.Addr, node)
		return nil
	}
	return im.claim(from, p.Pool, netip.PrefixFrom(r.Addr, region.BlockSize).Masked(), node, r.Addr)
}

// claim claims a block for a node; an address on another node than its block's is lent to that node.
func (im *importer) claim(from, pool string, cidr netip.Prefix, node string, a netip.Addr) error {
	b := im.claims[cidr]
	if b == nil && im.blockNames[store.BlockName(pool, cidr)] {
		for _, have := range im.state.blocks {
			if have.Pool == pool && have.CIDR == cidr && have.Node != node && !strings.HasPrefix(have.Lent[a], node+"/") {
				im.warn("%s: address %s is on node %q, and block %s is node %q's: it is unreachable; re-create its pod", from,
					a, node, cidr, have.Node)
			}
		}
		return nil
	}
	number, err := im.number()
	if err != nil {
		return err
	}
	switch {
	case b == nil:
		im.claims[cidr] = &model.AddressBlock{Pool: pool, CIDR: cidr, Node: node, Claim: number}
	case b.Node != node:
		if b.Lent == nil {
			b.Lent = map[netip.Addr]string{}
		}
		b.Lent[a] = node + "/" + number
	}
	return nil
}

// number returns a random number for a claim.
func (im *importer) number() (string, error) {
	var b [8]byte
	if _, err := io.ReadFull(im.random, b[:]); err != nil {
		return "", fmt.Errorf("number for a claim: %w", err)
	}
	return hex.EncodeToString(b[:]), nil
}

// finish sorts the import.
func (im *importer) finish() Import {
	for _, p := range im.pools {
		if p.New || p.Existing+len(p.Reserved) > 0 {
			slices.SortFunc(p.Reserved, func(a, b model.ReservedAddress) int { return a.Addr.Compare(b.Addr) })
			im.out.Pools = append(im.out.Pools, *p)
		}
	}
	slices.SortFunc(im.out.Pools, func(a, b PoolImport) int { return strings.Compare(a.Pool, b.Pool) })
	for _, b := range im.claims {
		im.out.Blocks = append(im.out.Blocks, *b)
	}
	slices.SortFunc(im.out.Blocks, func(a, b model.AddressBlock) int { return a.CIDR.Addr().Compare(b.CIDR.Addr()) })
	return im.out
}

// Apply writes each pool in one request, then the blocks, so that an address is reserved before a node has its block.
// It can be run again after an error and continues where it stopped.
func (im Import) Apply(ctx context.Context, objects store.Objects) error {
	for _, p := range im.Pools {
		if _, err := p.apply(ctx, objects); err != nil {
			return err
		}
	}
	for _, b := range im.Blocks {
		o, err := store.AddressBlockObject(store.Object{}, b)
		if err == nil {
			_, err = objects.Create(ctx, store.AddressBlocks(), o)
		}
		if errors.Is(err, store.ErrExists) { // a node has claimed it meanwhile
			return model.Errorf(model.CodeTryAgain, "run it again", "block %s was claimed meanwhile: %w", b.CIDR, err)
		}
		if err != nil {
			return fmt.Errorf("block %s: %w", b.CIDR, err)
		}
	}
	return nil
}

// since returns the creation time of the pool that a new one mirrors; empty if unknown.
func since(p model.AddressPool) string {
	if p.Created == 0 {
		return ""
	}
	return time.Unix(p.Created, 0).UTC().Format(time.RFC3339)
}

func (p PoolImport) apply(ctx context.Context, objects store.Objects) (store.Object, error) {
	if !p.New && len(p.Regions)+len(p.Reserved) == 0 {
		return p.object, nil
	}
	spec := p.spec
	spec.Reserved = append(slices.Clone(spec.Reserved), p.Reserved...)
	next, err := store.AddressPoolObject(p.object, spec)
	if err == nil && p.from != "" {
		next, err = next.Edited(store.Annotate(map[string]string{From: p.from, store.Since: since(p.spec)}))
	}
	if err != nil {
		return p.object, err
	}
	if p.New {
		next, err = objects.Create(ctx, store.AddressPools(), next)
	} else {
		next, err = objects.CompareAndSwap(ctx, store.AddressPools(), p.object.Version, next)
	}
	switch {
	case errors.Is(err, store.ErrExists), errors.Is(err, store.ErrConflict):
		return next, model.Errorf(model.CodeTryAgain, "run it again: it continues where it stopped",
			"pool %q was changed meanwhile: %w", p.Pool, err)
	case errors.Is(err, store.ErrNotFound):
		return next, model.Errorf(model.CodeNotAvailable, "install the definitions of deploy/crds first",
			"pool %q cannot be written: %w", p.Pool, err)
	case err != nil:
		return next, fmt.Errorf("pool %q: %w", p.Pool, err)
	}
	return next, nil
}
