// SPDX-License-Identifier: Apache-2.0

package grants

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/weft-net/weft/internal/cluster/store"
	"github.com/weft-net/weft/internal/ipam"
	"github.com/weft-net/weft/internal/ipam/claims"
	"github.com/weft-net/weft/internal/ipam/whereabouts"
	"github.com/weft-net/weft/internal/model"
)

// Pool serves an agent's request for a range: it adds what the pool lacks of it. Users manage pools of the cluster's
// network; a request for one is refused with CodeInvalidConf.
func Pool(ctx context.Context, objects store.Objects, r model.PoolRequest) error {
	kind := store.AddressPools()
	const tries = 10
	for range tries {
		o, err := store.WithTimeout(ctx, func(ctx context.Context) (store.Object, error) {
			return objects.Get(ctx, kind, kind.Key("", r.Pool))
		})
		spec := model.AddressPool{Name: r.Pool}
		switch {
		case errors.Is(err, store.ErrNotFound):
			o = store.Object{}
		case err != nil:
			return store.Unreachable("pool "+r.Pool, err)
		default:
			if spec, err = o.AddressPool(); err != nil {
				return err
			}
		}
		if spec.IsClusterPool() {
			return ipam.Invalid("choose another network_name, or rename the pool",
				"pool %q is one of the cluster's network: nothing is added for node %s", r.Pool, r.Node)
		}
		lacks := Missing(spec, r.CIDR)
		if len(lacks) == 0 {
			return nil
		}
		next, _, err := Extended(ctx, objects, o, spec, lacks, r)
		if err != nil {
			return err
		}
		_, err = store.WithTimeout(ctx, func(ctx context.Context) (store.Object, error) {
			if o.Version == "" {
				return objects.Create(ctx, kind, next)
			}
			return objects.CompareAndSwap(ctx, kind, o.Version, next)
		})
		if err == nil || !errors.Is(err, store.ErrExists) && store.IgnoreConflict(err) != nil {
			return err
		}
	}
	return model.Errorf(model.CodeTryAgain, "", "pool %q keeps changing", r.Pool)
}

// Missing returns the parts of a range that a pool does not have.
func Missing(p model.AddressPool, network netip.Prefix) []netip.Prefix {
	var have []netip.Prefix
	for _, r := range p.Regions {
		have = append(have, r.CIDR)
	}
	return minus(network, have)
}

// minus returns a prefix without the parts that others cover, as prefixes.
func minus(p netip.Prefix, others []netip.Prefix) []netip.Prefix {
	overlap := false
	for _, o := range others {
		if o.Bits() <= p.Bits() && o.Contains(p.Addr()) {
			return nil
		}
		overlap = overlap || p.Overlaps(o)
	}
	if !overlap {
		return []netip.Prefix{p}
	}
	low, high := halves(p)
	return append(minus(low, others), minus(high, others)...)
}

// halves splits a prefix into two.
func halves(p netip.Prefix) (low, high netip.Prefix) {
	b := p.Addr().AsSlice()
	b[p.Bits()/8] |= 0x80 >> (p.Bits() % 8)
	second, _ := netip.AddrFromSlice(b)
	return netip.PrefixFrom(p.Addr(), p.Bits()+1), netip.PrefixFrom(second, p.Bits()+1)
}

// Extended returns the pool with more regions, and with reservations for what whereabouts has allocated of them.
func Extended(
	ctx context.Context, objects store.Objects, o store.Object, spec model.AddressPool, lacks []netip.Prefix,
	r model.PoolRequest,
) (store.Object, model.AddressPool, error) {
	for _, cidr := range lacks {
		spec.Regions = append(spec.Regions, model.AddressRegion{CIDR: cidr, BlockSize: model.BlockSize(cidr, r.Addresses)})
	}
	foreign, err := whereabouts.Read(ctx, whereabouts.ListerOf(objects))
	if err != nil {
		return o, spec, fmt.Errorf("import: %w", err)
	}
	spec.Reserved = append(spec.Reserved, foreign.Reserved(r.Network, lacks)...)
	next, err := store.AddressPoolObject(o, spec)
	return next, spec, err
}

// FreeClaim removes addresses from the claim of a virtual machine that no pool can allocate any more: the next pod of
// the VM gets others.
func FreeClaim(ctx context.Context, objects store.Objects, claim string) error {
	kind, key := claims.ObjectKey(claims.AddressClaimPrefix + claim)
	o, err := store.WithTimeout(
		ctx,
		func(ctx context.Context) (store.Object, error) { return objects.Get(ctx, kind, key) },
	)
	if errors.Is(err, store.ErrNotFound) {
		return nil
	}
	if err != nil {
		return store.Unreachable(claim, err)
	}
	all, err := store.WithTimeout(ctx, func(ctx context.Context) ([]store.Object, error) {
		return objects.List(ctx, store.AddressPools())
	})
	if err != nil {
		return store.Unreachable("list of pools", err)
	}
	var pools []model.AddressPool
	for _, o := range all {
		p, err := o.AddressPool()
		if err != nil {
			return err // it may be the pool that has them
		}
		pools = append(pools, p)
	}
	pools = slices.DeleteFunc(model.Allocatable(pools), func(p model.AddressPool) bool { return !p.IsClusterPool() })
	given := func(text any) bool {
		word, _ := text.(string)
		a, err := netip.ParseAddr(word)
		return err == nil && slices.ContainsFunc(pools, func(p model.AddressPool) bool {
			return slices.ContainsFunc(p.Regions, func(r model.AddressRegion) bool { return r.CIDR.Contains(a.Unmap()) })
		})
	}
	next, err := o.Edited(func(fields map[string]any) error {
		spec, _ := fields["spec"].(map[string]any)
		status, _ := fields["status"].(map[string]any)
		if addrs, ok := status["addresses"].([]any); ok && spec["virtualMachine"] != nil {
			status["addresses"] = slices.DeleteFunc(slices.Clone(addrs), func(x any) bool { return !given(x) })
		}
		return nil
	})
	if err != nil || bytes.Equal(next.Raw, o.Raw) {
		return err
	}
	_, err = store.WithTimeout(ctx, func(ctx context.Context) (store.Object, error) {
		return objects.CompareAndSwapStatus(ctx, kind, o.Version, next)
	})
	if errors.Is(err, store.ErrConflict) {
		return model.Errorf(model.CodeTryAgain, "", "%s was changed meanwhile: %w", claim, err)
	}
	return store.IgnoreConflict(err)
}
