// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/weft-net/weft/internal/calico"
	"github.com/weft-net/weft/internal/cluster/store"
	"github.com/weft-net/weft/internal/model"
)

// poolState is the state of all pools, blocks and reservations.
type poolState struct {
	objects    store.Objects
	conditions conditionWriter
	pools      map[string]store.Object // by name
	specs      map[string]model.AddressPool
	invalid    map[string]error // invalid pools
	blocks     []model.AddressBlock
	inServices map[string]int // addresses that Services have, by pool
	// excluded are the ranges of all reservations; unread are invalid reservations, whose ranges in pools are kept.
	excluded []model.ExcludedRange
	unread   map[string]bool
	problems []error
	// conflicted are pools that were written concurrently, and were not changed.
	conflicted []string
	// followsCalico: Calico's objects are mirrored; else earlier mirrors are kept.
	followsCalico bool
}

// Reconcile reconciles the pools once, without the audit, and returns the pools in numbers. Calico's pools are mirrored
// if weft allocates the addresses of the cluster's network, instead of Calico. events may be nil.
func Reconcile(
	ctx context.Context, objects store.Objects, events Events, now time.Time, followCalico bool,
) ([]PoolReport, error) {
	s, err := reconcilePools(ctx, objects, events, now, followCalico)
	if err != nil {
		return nil, err
	}
	return s.report(), errors.Join(s.problems...)
}

// reconcilePools is Reconcile; its error means that nothing was done.
func reconcilePools(
	ctx context.Context, objects store.Objects, events Events, now time.Time, followCalico bool,
) (*poolState, error) {
	s, err := readPools(ctx, objects, now)
	if err != nil {
		return nil, err
	}
	s.conditions.events = events
	if s.followsCalico = followCalico; followCalico {
		cal, err := readCalico(ctx, objects)
		if err != nil {
			return nil, err
		}
		// Without any pool of Calico nothing is mirrored, and the ranges of Calico's reservations are kept.
		s.followsCalico = len(cal.kinds)+len(cal.unreadPools) > 0
		s.problems = append(s.problems, cal.problems...)
		s.excluded = append(s.excluded, cal.excluded...)
		for name := range cal.unread {
			s.unread[name] = true
		}
		s.mirror(ctx, cal)
	}
	for _, name := range s.names() {
		s.reconcilePool(ctx, name)
	}
	s.writeConditions(ctx)
	return s, nil
}

// readPools reads pools, blocks and reservations.
func readPools(ctx context.Context, objects store.Objects, now time.Time) (*poolState, error) {
	s := &poolState{
		objects: objects, conditions: conditionWriter{objects: objects, now: now}, pools: map[string]store.Object{}, specs: map[string]model.AddressPool{},
		invalid: map[string]error{},
		unread:  map[string]bool{},
	}
	pools, err := list(ctx, objects, store.AddressPools())
	if err != nil {
		return nil, err
	}
	for _, o := range pools {
		s.set(o)
	}
	if s.inServices, err = servicesInPools(ctx, objects, s.sorted()); err != nil {
		return nil, err
	}
	claimed, err := list(ctx, objects, store.AddressBlocks())
	if err != nil {
		return nil, err
	}
	for _, o := range claimed {
		if b, err := o.AddressBlock(); err == nil { // an invalid one is reported by the audit
			s.blocks = append(s.blocks, b)
		}
	}
	reservations, err := list(ctx, objects, store.AddressReservations())
	if err != nil {
		return nil, err
	}
	for _, o := range reservations {
		ranges, err := o.AddressReservation()
		if err != nil {
			s.problems = append(s.problems, err)
			s.unread[o.Key.String()] = true
			continue
		}
		s.excluded = append(s.excluded, ranges...)
	}
	return s, nil
}

func list(ctx context.Context, objects store.Objects, kind store.Kind) ([]store.Object, error) {
	all, err := objects.List(ctx, kind)
	if err != nil && !errors.Is(err, store.ErrNotFound) {
		return nil, fmt.Errorf("list of %s: %w", kind.Resource, err)
	}
	return all, nil
}

// set stores the current state of a pool.
func (s *poolState) set(o store.Object) {
	name := o.Key.Name
	s.pools[name] = o
	spec, err := o.AddressPool()
	delete(s.specs, name)
	delete(s.invalid, name)
	if err != nil {
		s.invalid[name] = err
		return
	}
	s.specs[name] = spec
}

func (s *poolState) names() []string {
	var names []string
	for name := range s.pools {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// blockCount returns how many of a pool's blocks have an affinity to a node.
func (s *poolState) blockCount(pool string) int {
	n := 0
	for _, b := range s.blocks {
		if b.Pool == pool {
			n++
		}
	}
	return n
}

// write writes a pool if it has changed. A conflict is retried by the next pass.
func (s *poolState) write(ctx context.Context, next store.Object) {
	name := next.Key.Name
	was := s.pools[name]
	if bytes.Equal(next.Raw, was.Raw) {
		return
	}
	got, err := s.objects.CompareAndSwap(ctx, store.AddressPools(), was.Version, next)
	switch {
	case err == nil:
		s.set(got)
	case errors.Is(err, store.ErrNotFound):
		delete(s.pools, name)
		delete(s.specs, name)
	case errors.Is(err, store.ErrConflict):
		s.conflicted = append(s.conflicted, name)
	default:
		s.problems = append(s.problems, fmt.Errorf("pool %s: %w", name, err))
	}
}

// reconcilePool updates a pool's reservations and finalizer.
func (s *poolState) reconcilePool(ctx context.Context, name string) {
	spec, ok := s.specs[name]
	if !ok {
		return
	}
	next, err := s.pools[name], error(nil)
	if excluded := s.excludedOf(spec); !slices.Equal(excluded, spec.Excluded) { // else the operator's notation is kept
		spec.Excluded = excluded
		next, err = store.AddressPoolObject(next, spec)
	}
	if err == nil {
		next, err = next.Edited(s.finalizerEdit(spec))
	}
	if err != nil {
		s.problems = append(s.problems, err)
		return
	}
	s.write(ctx, next)
}

// excludedOf returns the ranges that a pool excludes: those in its spec by operators, and those of overlapping
// reservations.
func (s *poolState) excludedOf(p model.AddressPool) []model.ExcludedRange {
	var out []model.ExcludedRange
	for _, r := range p.Excluded {
		if r.Source == "" || s.unread[r.Source] || !s.followsCalico && calico.IsReservation(r.Source) {
			out = append(out, r)
		}
	}
	for _, r := range s.excluded {
		if slices.ContainsFunc(p.Regions, func(region model.AddressRegion) bool { return region.CIDR.Overlaps(r.CIDR) }) {
			out = append(out, r)
		}
	}
	slices.SortStableFunc(out, func(a, b model.ExcludedRange) int {
		if n := a.CIDR.Addr().Compare(b.CIDR.Addr()); n != 0 {
			return n
		}
		if a.CIDR.Bits() != b.CIDR.Bits() {
			return a.CIDR.Bits() - b.CIDR.Bits()
		}
		return strings.Compare(a.Source, b.Source)
	})
	return slices.Compact(out)
}

// report returns the pools in numbers.
func (s *poolState) report() []PoolReport {
	conditions := model.PoolConditions(s.sorted())
	var out []PoolReport
	for _, p := range s.sorted() {
		r := PoolReport{
			Name: p.Name, Allocatable: conditions[p.Name].True, Reserved: len(p.Reserved), Excluded: len(p.Excluded),
		}
		for _, region := range p.Regions {
			r.Addresses += size(region.CIDR)
		}
		r.Claimed = float64(s.inServices[p.Name])
		for _, b := range s.blocks {
			if b.Pool == p.Name {
				r.Blocks++
				r.Claimed += size(b.CIDR)
			}
		}
		out = append(out, r)
	}
	return out
}

func size(p netip.Prefix) float64 { return math.Pow(2, float64(p.Addr().BitLen()-p.Bits())) }

func (s *poolState) sorted() []model.AddressPool {
	var out []model.AddressPool
	for _, name := range s.names() {
		if spec, ok := s.specs[name]; ok {
			out = append(out, spec)
		}
	}
	return out
}
