// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/weft-net/weft/internal/cluster/store"
	"github.com/weft-net/weft/internal/ipam/audit"
	"github.com/weft-net/weft/internal/model"
)

// Change is what `weft ipam reserve` and `release` did, or found.
type Change struct {
	// Done are the things that were done, in words.
	Done []string `json:"done"`
	// Pools are the pools that have the addresses.
	Pools []string `json:"pools"`
	// Held are addresses that pods have: they keep them until they go.
	Held []string `json:"held"`
}

// Reserve makes an AddressReservation, and has it in force in the pools before it returns.
func Reserve(
	ctx context.Context, objects store.Objects, name, what string, ranges []netip.Prefix, now time.Time,
) (Change, error) {
	c := Change{Done: []string{}, Pools: []string{}, Held: []string{}}
	s, err := look(ctx, objects, now)
	if err != nil {
		return c, err
	}
	pods, err := audit.ReadPods(ctx, objects)
	if err != nil {
		return c, err
	}
	var texts []string
	for _, r := range ranges {
		pools := s.having(r)
		if len(pools) == 0 {
			return c, model.Faultf(model.CodeInvalidConf, "see the pools in `weft ipam show`",
				"%s is outside every pool", short(r))
		}
		c.Pools = append(c.Pools, pools...)
		texts = append(texts, short(r))
		c.Held = append(c.Held, holders(pods, r)...)
	}
	slices.Sort(c.Pools)
	c.Pools = slices.Compact(c.Pools)
	o, err := store.NewAddressReservation(name, what, texts)
	if err == nil {
		_, err = objects.Create(ctx, store.AddressReservations(), o)
	}
	switch {
	case errors.Is(err, store.ErrExists):
		return c, model.Faultf(model.CodeExists, "choose another --name, or release that one first",
			"AddressReservation %s exists already", name)
	case errors.Is(err, store.ErrNotFound):
		return c, model.Faultf(model.CodeNotAvailable, "install the definitions of deploy/crds first",
			"AddressReservation %s: %w", name, err)
	case err != nil:
		return c, fmt.Errorf("AddressReservation %s: %w", name, err)
	}
	c.Done = append(c.Done, fmt.Sprintf("AddressReservation %s: %s", name, strings.Join(texts, ", ")))
	return c, enforce(ctx, objects, now)
}

// tries is how often pools that others write at the same time are looked at anew.
const tries = 5

// enforce has what reservations say in all pools. Agents write pools, too, when they ask for blocks of others: who was
// overtaken by one of them looks again, for the caller may only answer when the pools know.
func enforce(ctx context.Context, objects store.Objects, now time.Time) error {
	var overtaken []string
	for range tries {
		s, err := tend(ctx, objects, now, false)
		if err != nil {
			return err
		}
		if err := errors.Join(s.problems...); err != nil {
			return err
		}
		if overtaken = s.overtaken; len(overtaken) == 0 {
			return nil
		}
	}
	return model.Faultf(model.CodeTryAgain, "the controller goes on with it; `weft ipam show` tells when it is done",
		"the reservations are written, but not in force yet: others write at the same time to pool %s",
		strings.Join(overtaken, ", "))
}

// short is an address, or a prefix.
func short(p netip.Prefix) string {
	if p.IsSingleIP() {
		return p.Addr().String()
	}
	return p.String()
}

// having are the pools that have some of a prefix.
func (s *scene) having(p netip.Prefix) []string {
	var out []string
	for _, spec := range s.sorted() {
		if slices.ContainsFunc(spec.Regions, func(r model.AddressRegion) bool { return r.CIDR.Overlaps(p) }) {
			out = append(out, spec.Name)
		}
	}
	return out
}

// holders are the addresses of a prefix that pods have, in words.
func holders(pods audit.Pods, p netip.Prefix) []string {
	var out []string
	in := pods.In(p)
	for _, a := range sortedAddrs(in) {
		out = append(out, fmt.Sprintf("%s pod %s", a, strings.Join(in[a], ", ")))
	}
	return out
}

func sortedAddrs[V any](m map[netip.Addr]V) []netip.Addr {
	var out []netip.Addr
	for a := range m {
		out = append(out, a)
	}
	slices.SortFunc(out, netip.Addr.Compare)
	return out
}

// Release takes reservations back: of people, and of an import. What a pod has is not released here: it would be given
// twice.
func Release(ctx context.Context, objects store.Objects, ranges []netip.Prefix, now time.Time) (Change, error) {
	c := Change{Done: []string{}, Pools: []string{}, Held: []string{}}
	s, err := look(ctx, objects, now)
	if err != nil {
		return c, err
	}
	pods, err := audit.ReadPods(ctx, objects)
	if err != nil {
		return c, err
	}
	for _, r := range ranges { // everything is looked at before the first is done
		if err := s.releasable(pods, r); err != nil {
			return c, err
		}
	}
	for _, r := range ranges {
		done, err := s.release(ctx, pods, r)
		if c.Done = append(c.Done, done...); err != nil {
			return c, err
		}
	}
	return c, enforce(ctx, objects, now)
}

// releasable tells what stands against a release.
func (s *scene) releasable(pods audit.Pods, r netip.Prefix) error {
	for _, p := range s.sorted() {
		for _, have := range p.Reserved {
			if have.Addr != r.Addr() || !r.IsSingleIP() {
				continue
			}
			if names := pods.Having(have.Addr); len(names) > 0 {
				return model.Faultf(model.CodeInvalidConf, "delete the pod: then its address is free", "address %s is pod %s's",
					have.Addr, strings.Join(names, ", "))
			}
			return nil
		}
	}
	for _, have := range s.excluded {
		if have.CIDR == r {
			return nil
		}
	}
	for _, have := range s.excluded {
		if have.CIDR.Overlaps(r) {
			return model.Faultf(model.CodeInvalidConf, "release "+short(have.CIDR)+", or edit that object",
				"%s is a part of %s, which %s keeps back", short(r), have.CIDR, have.By)
		}
	}
	if names := pods.Having(r.Addr()); len(names) > 0 && r.IsSingleIP() {
		return model.Faultf(model.CodeInvalidConf, "delete the pod: then its address is free", "address %s is pod %s's",
			r.Addr(), strings.Join(names, ", "))
	}
	return model.Faultf(model.CodeInvalidConf, "`weft ipam show ADDRESS` tells about an address",
		"%s is not reserved", short(r))
}

// release takes a range out of the reservations, or an address out of the pools.
func (s *scene) release(ctx context.Context, pods audit.Pods, r netip.Prefix) ([]string, error) {
	var done []string
	for _, p := range s.sorted() {
		left := slices.DeleteFunc(slices.Clone(p.Reserved), func(have model.ReservedAddress) bool {
			return r.IsSingleIP() && have.Addr == r.Addr() && len(pods.Having(have.Addr)) == 0
		})
		if len(left) == len(p.Reserved) {
			continue
		}
		p.Reserved = left
		kept, err := editPool(ctx, s.objects, s.pools[p.Name], p)
		if err != nil {
			return done, err
		}
		s.take(kept) // the next range may be of the same pool
		done = append(done, fmt.Sprintf("AddressPool %s: %s", p.Name, short(r)))
	}
	all, err := list(ctx, s.objects, store.AddressReservations())
	if err != nil {
		return done, err
	}
	for _, o := range all {
		ranges, err := o.AddressReservation()
		if err != nil || !slices.ContainsFunc(ranges, func(have model.ExcludedRange) bool { return have.CIDR == r }) {
			continue
		}
		var texts []any
		for _, have := range ranges {
			if have.CIDR != r {
				texts = append(texts, short(have.CIDR))
			}
		}
		if err := s.shrink(ctx, o, texts); err != nil {
			return done, err
		}
		done = append(done, fmt.Sprintf("%s: %s", o.Key, short(r)))
	}
	return done, nil
}

// shrink leaves these addresses to a reservation; one without any goes.
func (s *scene) shrink(ctx context.Context, o store.Object, texts []any) error {
	if len(texts) == 0 {
		return s.objects.Delete(ctx, store.AddressReservations(), o.Key, o.Version)
	}
	next, err := o.Edited(func(fields map[string]any) error {
		spec, _ := fields["spec"].(map[string]any)
		spec["addresses"] = texts
		return nil
	})
	if err == nil {
		_, err = s.objects.CompareAndSwap(ctx, store.AddressReservations(), o.Version, next)
	}
	return err
}

// editPool writes a pool for people: they are told when somebody was faster.
func editPool(
	ctx context.Context, objects store.Objects, o store.Object, spec model.AddressPool,
) (store.Object, error) {
	next, err := store.AddressPoolObject(o, spec)
	if err == nil {
		next, err = objects.CompareAndSwap(ctx, store.AddressPools(), o.Version, next)
	}
	if errors.Is(err, store.ErrConflict) {
		return o, model.Faultf(model.CodeTryAgain, "run it again", "pool %q was changed meanwhile: %w", spec.Name, err)
	}
	return next, err
}

// ReservedBy are the addresses that an import from somebody has reserved and that no pod has.
func ReservedBy(ctx context.Context, objects store.Objects, by string) ([]netip.Prefix, error) {
	s, err := look(ctx, objects, time.Time{})
	if err != nil {
		return nil, err
	}
	pods, err := audit.ReadPods(ctx, objects)
	if err != nil {
		return nil, err
	}
	var out []netip.Prefix
	for _, p := range s.sorted() {
		for _, r := range p.Reserved {
			if r.By == by && len(pods.Having(r.Addr)) == 0 {
				out = append(out, netip.PrefixFrom(r.Addr, r.Addr.BitLen()))
			}
		}
	}
	slices.SortFunc(out, func(a, b netip.Prefix) int { return a.Addr().Compare(b.Addr()) })
	return slices.Compact(out), nil
}
