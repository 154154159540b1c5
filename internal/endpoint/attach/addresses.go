// SPDX-License-Identifier: Apache-2.0

package attach

import (
	"cmp"
	"context"
	"net/netip"
	"slices"

	"github.com/weft-net/weft/internal/ipam"
	"github.com/weft-net/weft/internal/model"
)

// allocateAddresses allocates the addresses of all runs. Where every allocator can reserve, addresses are reserved
// only, and are recorded together with the plan. Otherwise the intention to allocate is recorded first. An allocated
// address can be released by its owner's name alone.
func (g *group) allocateAddresses(ctx context.Context) error {
	asks := false
	err := g.each(func(r *run) error {
		err := r.addIPAMActs()
		asks = asks || len(r.seg.types) > 0
		return err
	})
	if err != nil || !asks {
		return err
	}
	if g.canReserve() {
		return g.reserveAddresses(ctx)
	}
	if err := g.write("promise addresses"); err != nil {
		return err
	}
	return g.each(func(r *run) error { return r.allocateAll(ctx) })
}

// canReserve reports whether the addresses of all runs can be reserved before they are allocated. A network that is in
// the list twice would wait for its own reservation, and so would two IPAM sections of one network.
func (g *group) canReserve() bool {
	networks := map[string]bool{}
	for _, r := range g.runs {
		for _, typ := range r.seg.types {
			if g.a.catalog.ipamCapabilities(typ).Reserve == nil || len(r.seg.types) > 1 || networks[r.job.Request.Network] {
				return false
			}
			networks[r.job.Request.Network] = true
		}
	}
	return true
}

// reserveAddresses reserves the addresses of all runs. Every call goes through the networks in the order of their
// names, so that no two pods wait for each other.
func (g *group) reserveAddresses(ctx context.Context) error {
	byName := slices.SortedFunc(slices.Values(g.runs), func(a, b *run) int {
		return cmp.Compare(a.job.Request.Network, b.job.Request.Network)
	})
	for _, r := range byName {
		if len(r.seg.types) == 0 {
			continue
		}
		if err := r.reserve(ctx); err != nil {
			g.failedRun = r
			return err
		}
	}
	return nil
}

// commitAddresses allocates the reserved addresses after they were recorded. If one of several fails, the record covers
// all of them. An agent allocates in the background; the returned function waits for the result.
func (g *group) commitAddresses() (func() error, error) {
	nothing := func() error { return nil }
	var holds []ipam.Reservation
	for _, r := range g.runs {
		if r.hold != nil {
			holds = append(holds, r.hold)
			r.hold = nil
		}
	}
	if len(holds) == 0 {
		return nothing, nil
	}
	if !g.a.agent { // in a short-lived process a thread costs more than it saves
		if err := commitHolds(holds); err != nil {
			return nothing, err
		}
		return nothing, g.a.fail.At("after ipam")
	}
	done := make(chan error, 1)
	go func() { done <- commitHolds(holds) }()
	return func() error {
		if err := <-done; err != nil {
			return err
		}
		return g.a.fail.At("after ipam")
	}, nil
}

// commitHolds commits the reservations up to the first error and drops the others.
func commitHolds(holds []ipam.Reservation) (err error) {
	for _, h := range holds {
		if err == nil {
			err = h.Commit()
		}
		h.Cancel()
	}
	return err
}

// dropHolds drops reservations that were never recorded.
func (g *group) dropHolds() {
	for _, r := range g.runs {
		if r.hold != nil {
			r.hold.Cancel()
		}
	}
}

// addIPAMActs adds an act for each IPAM section of the segment's plugins.
func (r *run) addIPAMActs() error {
	r.seg.acts, r.seg.types = len(r.rec.Acts), map[int]string{}
	for k := r.seg.from; k < r.seg.to; k++ {
		typ, err := r.a.catalog.ipamType(r.job.Network.Plugins[k])
		if err != nil {
			return err
		}
		if typ != "" {
			r.seg.types[k] = typ
			r.rec.Acts = append(r.rec.Acts, Act{Kind: ActIPAM, Plugin: k})
		}
	}
	return nil
}

// allocateAll performs the segment's recorded IPAM acts.
func (r *run) allocateAll(ctx context.Context) error {
	r.seg.results = map[int]*model.Result{}
	for n := r.seg.acts; n < len(r.rec.Acts); n++ {
		k := r.rec.Acts[n].Plugin
		typ := r.seg.types[k]
		result, err := r.allocate(ctx, k, typ)
		if err != nil {
			if r.a.catalog.allocators[typ] != nil {
				// Nothing was allocated, so nothing is released, least of all what an earlier ADD has.
				r.rec.Acts = r.rec.Acts[:n]
			} else {
				r.rec.Acts = r.rec.Acts[:n+1]
			}
			return err
		}
		r.rec.Acts[n].IPs = result.IPs
		r.seg.results[k] = &result
		if err := r.a.fail.At("after ipam"); err != nil {
			return err
		}
	}
	return r.waitCooldown(ctx)
}

func (r *run) allocate(ctx context.Context, k int, typ string) (model.Result, error) {
	conf := r.job.Network.Plugins[k]
	if alloc := r.a.catalog.allocators[typ]; alloc != nil {
		q, err := r.allocateRequest(conf)
		if err != nil {
			return model.Result{}, err
		}
		return alloc.Add(ctx, q)
	}
	return r.a.delegates.add(ctx, r.job, conf, typ, r.chain.Prev)
}

// reserve reserves the addresses of the segment's only IPAM section, so that they are recorded together with the plan.
func (r *run) reserve(ctx context.Context) error {
	act := &r.rec.Acts[r.seg.acts]
	q, err := r.allocateRequest(r.job.Network.Plugins[act.Plugin])
	if err == nil {
		r.hold, err = r.a.catalog.ipamCapabilities(r.seg.types[act.Plugin]).Reserve.Reserve(ctx, q)
	}
	if err != nil {
		r.rec.Acts = r.rec.Acts[:r.seg.acts]
		return err
	}
	r.rec.Standby = r.rec.Standby || r.hold.Standby()
	result := r.hold.Result()
	act.IPs = result.IPs
	r.seg.results = map[int]*model.Result{act.Plugin: &result}
	return r.waitCooldown(ctx)
}

// waitCooldown waits until no dead link has one of the allocated addresses, and connections to them are flushed.
func (r *run) waitCooldown(ctx context.Context) error {
	if !r.a.agent {
		return nil
	}
	var addrs []netip.Addr
	for _, result := range r.seg.results {
		for _, ip := range result.IPs {
			addrs = append(addrs, ip.Address.Addr())
		}
	}
	if !r.a.cooling.any(r.job.Request.Network, addrs) {
		return nil
	}
	if err := r.a.reaper.Wait(ctx); err != nil {
		return err
	}
	if flushing, _ := r.a.reaper.Flushing(addrs); flushing {
		return model.Errorf(model.CodeTryAgain, "the agent retries; look at its log",
			"connections to the container that had the address before could not be flushed")
	}
	return nil
}
