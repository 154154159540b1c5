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

// addresses asks the IPAM sections of the runs' plugins: their addresses are chosen only, and the plan's promise is
// theirs too, or promised, all in one, and taken. What is given can be given back by its owner's name alone.
func (g *group) addresses(ctx context.Context) error {
	asks := false
	err := g.each(func(r *run) error {
		err := r.ipamActs()
		asks = asks || len(r.seg.types) > 0
		return err
	})
	if err != nil || !asks {
		return err
	}
	if g.holdable() {
		return g.hold(ctx)
	}
	if err := g.write("promise addresses", Pending); err != nil {
		return err
	}
	return g.each(func(r *run) error { return r.allocateAll(ctx) })
}

// holdable reports whether the addresses of all runs can be chosen before they are taken. A network that comes twice
// would wait for itself, as two IPAM sections of one network would for each other.
func (g *group) holdable() bool {
	networks := map[string]bool{}
	for _, r := range g.runs {
		for _, typ := range r.seg.types {
			if g.a.catalog.ofIPAM(typ).Hold == nil || len(r.seg.types) > 1 || networks[r.job.Request.Network] {
				return false
			}
			networks[r.job.Request.Network] = true
		}
	}
	return true
}

// hold chooses the addresses of all runs. Everybody goes through the networks in the order of their names, so that no
// two pods wait for each other.
func (g *group) hold(ctx context.Context) error {
	byName := slices.SortedFunc(slices.Values(g.runs), func(a, b *run) int {
		return cmp.Compare(a.job.Request.Network, b.job.Request.Network)
	})
	for _, r := range byName {
		if len(r.seg.types) == 0 {
			continue
		}
		if err := r.choose(ctx); err != nil {
			g.bad = r
			return err
		}
	}
	return nil
}

// take takes the addresses that were chosen, after their promise. That some were taken when one cannot be is no harm:
// all were promised. An agent does it beside what follows; the function that is returned waits for it.
func (g *group) take() (func() error, error) {
	nothing := func() error { return nil }
	var holds []ipam.Hold
	for _, r := range g.runs {
		if r.hold != nil {
			holds = append(holds, r.hold)
			r.hold = nil
		}
	}
	if len(holds) == 0 {
		return nothing, nil
	}
	if !g.a.agent { // a thread more would cost a short process more than it saves
		if err := keepAll(holds); err != nil {
			return nothing, err
		}
		return nothing, g.a.fail.At("after ipam")
	}
	done := make(chan error, 1)
	go func() { done <- keepAll(holds) }()
	return func() error {
		if err := <-done; err != nil {
			return err
		}
		return g.a.fail.At("after ipam")
	}, nil
}

// keepAll ends the holds: it keeps them up to the first error, and drops the others.
func keepAll(holds []ipam.Hold) (err error) {
	for _, h := range holds {
		if err == nil {
			err = h.Keep()
		}
		h.Drop()
	}
	return err
}

// drop gives up addresses that were chosen and never promised.
func (g *group) drop() {
	for _, r := range g.runs {
		if r.hold != nil {
			r.hold.Drop()
		}
	}
}

// ipamActs adds the acts of the IPAM sections of the segment's plugins.
func (r *run) ipamActs() error {
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

// allocateAll does the segment's promised IPAM acts.
func (r *run) allocateAll(ctx context.Context) error {
	r.seg.given = map[int]*model.Result{}
	for n := r.seg.acts; n < len(r.rec.Acts); n++ {
		k := r.rec.Acts[n].Plugin
		typ := r.seg.types[k]
		result, err := r.allocate(ctx, k, typ)
		if err != nil {
			if r.a.catalog.allocators[typ] != nil {
				// It gave nothing, so nothing is to be given back, least of all what an earlier ADD has.
				r.rec.Acts = r.rec.Acts[:n]
			} else {
				r.rec.Acts = r.rec.Acts[:n+1]
			}
			return err
		}
		r.rec.Acts[n].IPs = result.IPs
		r.seg.given[k] = &result
		if err := r.a.fail.At("after ipam"); err != nil {
			return err
		}
	}
	return r.rested(ctx)
}

func (r *run) allocate(ctx context.Context, k int, typ string) (model.Result, error) {
	conf := r.job.Network.Plugins[k]
	if alloc := r.a.catalog.allocators[typ]; alloc != nil {
		q, err := r.ask(conf)
		if err != nil {
			return model.Result{}, err
		}
		return alloc.Add(ctx, q)
	}
	return r.a.delegates.add(ctx, r.job, conf, typ, r.chain.Prev)
}

// choose has the addresses of the segment's only IPAM section named and not given yet: they and the plan are one
// promise then.
func (r *run) choose(ctx context.Context) error {
	act := &r.rec.Acts[r.seg.acts]
	q, err := r.ask(r.job.Network.Plugins[act.Plugin])
	if err == nil {
		r.hold, err = r.a.catalog.ofIPAM(r.seg.types[act.Plugin]).Hold.Hold(ctx, q)
	}
	if err != nil {
		r.rec.Acts = r.rec.Acts[:r.seg.acts]
		return err
	}
	r.rec.Standby = r.rec.Standby || r.hold.Standby()
	result := r.hold.Result()
	act.IPs = result.IPs
	r.seg.given = map[int]*model.Result{act.Plugin: &result}
	return r.rested(ctx)
}

// rested waits until no dead link has one of the given addresses any more.
func (r *run) rested(ctx context.Context) error {
	if !r.a.agent {
		return nil
	}
	var addrs []netip.Addr
	for _, result := range r.seg.given {
		for _, ip := range result.IPs {
			addrs = append(addrs, ip.Address.Addr())
		}
	}
	if !r.a.cooling.any(r.job.Request.Network, addrs) {
		return nil
	}
	return r.a.reaper.Wait(ctx)
}
