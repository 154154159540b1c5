// SPDX-License-Identifier: Apache-2.0

package attach

import (
	"context"
	"net/netip"

	"github.com/weft-net/weft/internal/ipam"
	"github.com/weft-net/weft/internal/model"
)

// addresses asks the IPAM sections of the plugins. They are promised before, all in one, because what is given can be
// given back by its owner's name alone.
func (r *run) addresses(ctx context.Context, i, j int) (map[int]*model.Result, error) {
	first := len(r.rec.Acts)
	types, err := r.ipamActs(i, j)
	if err != nil || len(types) == 0 {
		return nil, err
	}
	if held, err := r.choose(ctx, first); held != nil || err != nil {
		return held, err
	}
	if err := r.promise("promise addresses"); err != nil {
		return nil, err
	}
	return r.allocateAll(ctx, first, types)
}

// ipamActs adds the acts of the IPAM sections of the plugins from i to j, and gives their types.
func (r *run) ipamActs(i, j int) (map[int]string, error) {
	types := map[int]string{}
	for k := i; k < j; k++ {
		typ, err := r.a.ipamType(r.job.Network.Plugins[k])
		if err != nil {
			return nil, err
		}
		if typ != "" {
			types[k] = typ
			r.rec.Acts = append(r.rec.Acts, Act{Kind: ActIPAM, Plugin: k})
		}
	}
	return types, nil
}

// allocateAll does the promised IPAM acts from first on.
func (r *run) allocateAll(ctx context.Context, first int, types map[int]string) (map[int]*model.Result, error) {
	given := map[int]*model.Result{}
	for n := first; n < len(r.rec.Acts); n++ {
		k := r.rec.Acts[n].Plugin
		result, err := r.allocate(ctx, k, types[k])
		if err != nil {
			if r.a.cfg.Allocators[types[k]] != nil {
				// It gave nothing, so nothing is to be given back, least of all what an earlier ADD has.
				r.rec.Acts = r.rec.Acts[:n]
			} else {
				r.rec.Acts = r.rec.Acts[:n+1]
			}
			return nil, err
		}
		r.rec.Acts[n].IPs = result.IPs
		given[k] = &result
		if err := r.a.step("after ipam"); err != nil {
			return nil, err
		}
	}
	return given, r.rested(ctx, given)
}

func (r *run) allocate(ctx context.Context, k int, typ string) (model.Result, error) {
	conf := r.job.Network.Plugins[k]
	if alloc := r.a.cfg.Allocators[typ]; alloc != nil {
		q, err := r.ask(conf)
		if err != nil {
			return model.Result{}, err
		}
		return alloc.Add(ctx, q)
	}
	return r.execute(ctx, conf, typ, r.chain.Prev)
}

// rested waits until no dead link has one of the addresses any more.
func (r *run) rested(ctx context.Context, given map[int]*model.Result) error {
	if r.a.cfg.Reaper == nil {
		return nil
	}
	var addrs []netip.Addr
	for _, result := range given {
		for _, ip := range result.IPs {
			addrs = append(addrs, ip.Address.Addr())
		}
	}
	if !r.a.mourn.rests(r.job.Request.Network, addrs) {
		return nil
	}
	return r.a.cfg.Reaper.Wait(ctx)
}

// choose has the addresses named and not given yet, where that can be done: they and the plan are one promise then. It is
// done for one IPAM section alone, because two of one network would wait for each other. Nil: it cannot be done.
func (r *run) choose(ctx context.Context, first int) (map[int]*model.Result, error) {
	acts := r.rec.Acts[first:]
	conf := r.job.Network.Plugins[acts[0].Plugin]
	typ, err := r.a.ipamType(conf)
	if err != nil {
		return nil, err
	}
	holder, ok := r.a.cfg.Allocators[typ].(ipam.Holder)
	if !ok || len(acts) > 1 {
		return nil, nil
	}
	q, err := r.ask(conf)
	if err == nil {
		r.hold, err = holder.Hold(ctx, q)
	}
	if err != nil {
		r.rec.Acts = r.rec.Acts[:first]
		return nil, err
	}
	if s, is := r.hold.(ipam.Sharer); is && s.Standby() {
		r.rec.Standby = true
	}
	result := r.hold.Result()
	acts[0].IPs = result.IPs
	given := map[int]*model.Result{acts[0].Plugin: &result}
	return given, r.rested(ctx, given)
}

// keep takes the addresses that were chosen, after their promise. An agent does it beside what follows; the function that
// is returned waits for it.
func (r *run) keep() (func() error, error) {
	hold := r.hold
	r.hold = nil
	nothing := func() error { return nil }
	if hold == nil {
		return nothing, nil
	}
	if r.a.cfg.Reaper == nil { // a thread more would cost a short process more than it saves
		if err := hold.Keep(); err != nil {
			return nothing, err
		}
		return nothing, r.a.step("after ipam")
	}
	done := make(chan error, 1)
	go func() { done <- hold.Keep() }()
	return func() error {
		if err := <-done; err != nil {
			return err
		}
		return r.a.step("after ipam")
	}, nil
}

// drop gives up addresses that were chosen and never promised.
func (r *run) drop() {
	if r.hold != nil {
		r.hold.Drop()
	}
}
