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

// scene is what there is of pools.
type scene struct {
	objects store.Objects
	now     time.Time
	pools   map[string]store.Object // by name
	specs   map[string]model.AddressPool
	broken  map[string]error // pools that cannot be understood
	blocks  []model.AddressBlock
	// excluded are the ranges of all reservations; unread are reservations that cannot be understood: what pools have of
	// these stays.
	excluded []model.ExcludedRange
	unread   map[string]bool
	problems []error
	// overtaken are pools that somebody else wrote at the same time: they are as that one left them.
	overtaken []string
	// follows: Calico's objects are looked at; else what came of them stays.
	follows bool
}

// Tend does once what is to be done about pools, but for the comparison with pods, and gives the pools in numbers.
// Calico's pools are followed where weft gives the addresses of the cluster's network; beside a Calico that does, they
// are Calico's.
func Tend(ctx context.Context, objects store.Objects, now time.Time, followCalico bool) ([]PoolReport, error) {
	s, err := tend(ctx, objects, now, followCalico)
	if err != nil {
		return nil, err
	}
	return s.report(), errors.Join(s.problems...)
}

// tend is Tend; its error is that nothing could be done.
func tend(ctx context.Context, objects store.Objects, now time.Time, followCalico bool) (*scene, error) {
	s, err := look(ctx, objects, now)
	if err != nil {
		return nil, err
	}
	if s.follows = followCalico; followCalico {
		cal, err := lookCalico(ctx, objects)
		if err != nil {
			return nil, err
		}
		// Where none of Calico's pools is left nothing is followed: what was kept back for Calico's reservations stays, too.
		s.follows = len(cal.from)+len(cal.unreadP) > 0
		s.problems = append(s.problems, cal.problems...)
		s.excluded = append(s.excluded, cal.excluded...)
		for name := range cal.unread {
			s.unread[name] = true
		}
		s.mirror(ctx, cal)
	}
	for _, name := range s.names() {
		s.tendPool(ctx, name)
	}
	s.conditions(ctx)
	return s, nil
}

// look reads pools, blocks and reservations.
func look(ctx context.Context, objects store.Objects, now time.Time) (*scene, error) {
	s := &scene{
		objects: objects, now: now, pools: map[string]store.Object{}, specs: map[string]model.AddressPool{},
		broken: map[string]error{},
		unread: map[string]bool{},
	}
	pools, err := list(ctx, objects, store.AddressPools())
	if err != nil {
		return nil, err
	}
	for _, o := range pools {
		s.take(o)
	}
	claimed, err := list(ctx, objects, store.AddressBlocks())
	if err != nil {
		return nil, err
	}
	for _, o := range claimed {
		if b, err := o.AddressBlock(); err == nil { // one that is wrong is found by the comparison
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

// take notes a pool as it is now.
func (s *scene) take(o store.Object) {
	name := o.Key.Name
	s.pools[name] = o
	spec, err := o.AddressPool()
	delete(s.specs, name)
	delete(s.broken, name)
	if err != nil {
		s.broken[name] = err
		return
	}
	s.specs[name] = spec
}

func (s *scene) names() []string {
	var names []string
	for name := range s.pools {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// held is how many blocks of a pool nodes have.
func (s *scene) held(pool string) int {
	n := 0
	for _, b := range s.blocks {
		if b.Pool == pool {
			n++
		}
	}
	return n
}

// write replaces a pool where the next one says something else. Who was overtaken comes again.
func (s *scene) write(ctx context.Context, next store.Object) {
	name := next.Key.Name
	was := s.pools[name]
	if bytes.Equal(next.Raw, was.Raw) {
		return
	}
	got, err := s.objects.CompareAndSwap(ctx, store.AddressPools(), was.Version, next)
	switch {
	case err == nil:
		s.take(got)
	case errors.Is(err, store.ErrNotFound):
		delete(s.pools, name)
		delete(s.specs, name)
	case errors.Is(err, store.ErrConflict):
		s.overtaken = append(s.overtaken, name)
	default:
		s.problems = append(s.problems, fmt.Errorf("pool %s: %w", name, err))
	}
}

// tendPool brings a pool's reservations and its finalizer up to date.
func (s *scene) tendPool(ctx context.Context, name string) {
	spec, ok := s.specs[name]
	if !ok {
		return
	}
	next, err := s.pools[name], error(nil)
	if excluded := s.excludedOf(spec); !slices.Equal(excluded, spec.Excluded) { // else it stays as people have written it
		spec.Excluded = excluded
		next, err = store.AddressPoolObject(next, spec)
	}
	if err == nil {
		next, err = next.Edited(s.finalizer(spec))
	}
	if err != nil {
		s.problems = append(s.problems, err)
		return
	}
	s.write(ctx, next)
}

// excludedOf is what a pool is to exclude: what people wrote into it, and what of the reservations it has.
func (s *scene) excludedOf(p model.AddressPool) []model.ExcludedRange {
	var out []model.ExcludedRange
	for _, r := range p.Excluded {
		if r.By == "" || s.unread[r.By] || !s.follows && calico.IsReservation(r.By) {
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
		return strings.Compare(a.By, b.By)
	})
	return slices.Compact(out)
}

// report is each pool in numbers.
func (s *scene) report() []PoolReport {
	conditions := model.PoolConditions(s.sorted())
	var out []PoolReport
	for _, p := range s.sorted() {
		r := PoolReport{
			Name: p.Name, Allocatable: conditions[p.Name].True, Reserved: len(p.Reserved), Excluded: len(p.Excluded),
		}
		for _, region := range p.Regions {
			r.Addresses += size(region.CIDR)
		}
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

func (s *scene) sorted() []model.AddressPool {
	var out []model.AddressPool
	for _, name := range s.names() {
		if spec, ok := s.specs[name]; ok {
			out = append(out, spec)
		}
	}
	return out
}
