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

// Change is the result of `weft ipam reserve` and `release`.
type Change struct {
	// Done describes the changes.
	Done []string `json:"done"`
	// Pools are the pools that have the addresses.
	Pools []string `json:"pools"`
	// Held are addresses that pods use until they are deleted.
	Held []string `json:"held"`
}

// Reserve creates an AddressReservation, and applies it to the pools before it returns.
func Reserve(
	ctx context.Context, objects store.Objects, name, what string, ranges []netip.Prefix, now time.Time,
) (Change, error) {
	c := Change{Done: []string{}, Pools: []string{}, Held: []string{}}
	s, err := readPools(ctx, objects, now)
	if err != nil {
		return c, err
	}
	pods, err := audit.ReadPods(ctx, objects)
	if err != nil {
		return c, err
	}
	var texts []string
	for _, r := range ranges {
		pools := s.poolsContaining(r)
		if len(pools) == 0 {
			return c, model.Errorf(model.CodeInvalidConf, "see the pools in `weft ipam show`",
				"%s is outside of every pool", addrOrPrefix(r))
		}
		c.Pools = append(c.Pools, pools...)
		texts = append(texts, addrOrPrefix(r))
		c.Held = append(c.Held, podsIn(pods, r)...)
	}
	slices.Sort(c.Pools)
	c.Pools = slices.Compact(c.Pools)
	o, err := store.NewAddressReservation(name, what, texts)
	if err == nil {
		_, err = objects.Create(ctx, store.AddressReservations(), o)
	}
	switch {
	case errors.Is(err, store.ErrExists):
		return c, model.Errorf(model.CodeExists, "choose another --name, or release that one first",
			"AddressReservation %s exists already", name)
	case errors.Is(err, store.ErrNotFound):
		return c, model.Errorf(model.CodeNotAvailable, "install the definitions of deploy/crds first",
			"AddressReservation %s: %w", name, err)
	case err != nil:
		return c, fmt.Errorf("AddressReservation %s: %w", name, err)
	}
	c.Done = append(c.Done, fmt.Sprintf("AddressReservation %s: %s", name, strings.Join(texts, ", ")))
	return c, applyReservations(ctx, objects, now)
}

// maxTries bounds the retries on pools that are written concurrently.
const maxTries = 5

// applyReservations applies the reservations to all pools. It retries pools that agents write concurrently, because the
// caller must not return before all pools have the reservations.
func applyReservations(ctx context.Context, objects store.Objects, now time.Time) error {
	var overtaken []string
	for range maxTries {
		s, err := reconcilePools(ctx, objects, nil, now, false)
		if err != nil {
			return err
		}
		if err := errors.Join(s.problems...); err != nil {
			return err
		}
		if overtaken = s.conflicted; len(overtaken) == 0 {
			return nil
		}
	}
	return model.Errorf(model.CodeTryAgain, "the controller continues; `weft ipam show` lists the applied reservations",
		"the reservations are written, but not applied yet: concurrent writes to pool %s",
		strings.Join(overtaken, ", "))
}

// addrOrPrefix formats a prefix, or its single address.
func addrOrPrefix(p netip.Prefix) string {
	if p.IsSingleIP() {
		return p.Addr().String()
	}
	return p.String()
}

// poolsContaining returns the pools that overlap a prefix.
func (s *poolState) poolsContaining(p netip.Prefix) []string {
	var out []string
	for _, spec := range s.sorted() {
		if slices.ContainsFunc(spec.Regions, func(r model.AddressRegion) bool { return r.CIDR.Overlaps(p) }) {
			out = append(out, spec.Name)
		}
	}
	return out
}

// podsIn describes the addresses of a prefix that pods use.
func podsIn(pods audit.Pods, p netip.Prefix) []string {
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

// Release releases reservations: those of operators, and those of an import. An address that a pod uses is not
// released, because it would be allocated twice.
func Release(ctx context.Context, objects store.Objects, ranges []netip.Prefix, now time.Time) (Change, error) {
	c := Change{Done: []string{}, Pools: []string{}, Held: []string{}}
	s, err := readPools(ctx, objects, now)
	if err != nil {
		return c, err
	}
	pods, err := audit.ReadPods(ctx, objects)
	if err != nil {
		return c, err
	}
	for _, r := range ranges { // everything is checked before the first change
		if err := s.checkRelease(pods, r); err != nil {
			return c, err
		}
	}
	for _, r := range ranges {
		done, err := s.release(ctx, pods, r)
		if c.Done = append(c.Done, done...); err != nil {
			return c, err
		}
	}
	return c, applyReservations(ctx, objects, now)
}

// checkRelease returns an error if a range cannot be released.
func (s *poolState) checkRelease(pods audit.Pods, r netip.Prefix) error {
	for _, p := range s.sorted() {
		for _, have := range p.Reserved {
			if have.Addr != r.Addr() || !r.IsSingleIP() {
				continue
			}
			if names := pods.Having(have.Addr); len(names) > 0 {
				return model.Errorf(model.CodeInvalidConf, "delete the pod: then its address is free",
					"address %s is in use by pod %s", have.Addr, strings.Join(names, ", "))
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
			return model.Errorf(model.CodeInvalidConf, "release "+addrOrPrefix(have.CIDR)+", or edit that object",
				"%s is a part of %s, which %s reserves", addrOrPrefix(r), have.CIDR, have.Source)
		}
	}
	if names := pods.Having(r.Addr()); len(names) > 0 && r.IsSingleIP() {
		return model.Errorf(model.CodeInvalidConf, "delete the pod: then its address is free",
			"address %s is in use by pod %s", r.Addr(), strings.Join(names, ", "))
	}
	return model.Errorf(model.CodeInvalidConf, "`weft ipam show ADDRESS` describes an address",
		"%s is not reserved", addrOrPrefix(r))
}

// release removes a range from the reservations, or an address from the pools.
func (s *poolState) release(ctx context.Context, pods audit.Pods, r netip.Prefix) ([]string, error) {
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
		s.set(kept) // the next range may be in the same pool
		done = append(done, fmt.Sprintf("AddressPool %s: %s", p.Name, addrOrPrefix(r)))
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
				texts = append(texts, addrOrPrefix(have.CIDR))
			}
		}
		if err := s.shrink(ctx, o, texts); err != nil {
			return done, err
		}
		done = append(done, fmt.Sprintf("%s: %s", o.Key, addrOrPrefix(r)))
	}
	return done, nil
}

// shrink sets a reservation's addresses; without any it is deleted.
func (s *poolState) shrink(ctx context.Context, o store.Object, texts []any) error {
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

// editPool writes a pool for a command, which reports a conflict.
func editPool(
	ctx context.Context, objects store.Objects, o store.Object, spec model.AddressPool,
) (store.Object, error) {
	next, err := store.AddressPoolObject(o, spec)
	if err == nil {
		next, err = objects.CompareAndSwap(ctx, store.AddressPools(), o.Version, next)
	}
	if errors.Is(err, store.ErrConflict) {
		return o, model.Errorf(model.CodeTryAgain, "run it again", "pool %q was changed meanwhile: %w", spec.Name, err)
	}
	return next, err
}

// ReservedBy returns the addresses that an import has reserved and that no pod uses.
func ReservedBy(ctx context.Context, objects store.Objects, by string) ([]netip.Prefix, error) {
	s, err := readPools(ctx, objects, time.Time{})
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
			if r.Source == by && len(pods.Having(r.Addr)) == 0 {
				out = append(out, netip.PrefixFrom(r.Addr, r.Addr.BitLen()))
			}
		}
	}
	slices.SortFunc(out, func(a, b netip.Prefix) int { return a.Addr().Compare(b.Addr()) })
	return slices.Compact(out), nil
}
