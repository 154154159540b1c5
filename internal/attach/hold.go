// SPDX-License-Identifier: Apache-2.0

package attach

import (
	"cmp"
	"context"
	"slices"

	"github.com/weft-net/weft/internal/ipam"
	"github.com/weft-net/weft/internal/model"
)

// addresses gets the addresses of all runs: they are chosen only, and the plan's promise is theirs too, or promised and taken.
func (w *several) addresses(ctx context.Context, runs []*run) (failed int, err error) {
	any := false
	for _, r := range runs {
		r.first = len(r.rec.Acts)
		if r.types, err = r.ipamActs(0, len(r.job.Network.Plugins)); err != nil {
			return r.index, err
		}
		any = any || len(r.types) > 0
	}
	if !any {
		return 0, nil
	}
	if w.holdable(runs) {
		return w.hold(ctx, runs)
	}
	if err := w.write(runs, "promise addresses", Pending); err != nil {
		return runs[0].index, err
	}
	for _, r := range runs {
		if r.given, err = r.allocateAll(ctx, r.first, r.types); err != nil {
			return r.index, err
		}
	}
	return 0, nil
}

// holdable tells whether the addresses of all runs can be chosen before they are taken. A network that comes twice would
// wait for itself.
func (w *several) holdable(runs []*run) bool {
	networks := map[string]bool{}
	for _, r := range runs {
		for _, typ := range r.types {
			if _, ok := w.a.cfg.Allocators[typ].(ipam.Holder); !ok || len(r.types) > 1 || networks[r.job.Request.Network] {
				return false
			}
			networks[r.job.Request.Network] = true
		}
	}
	return true
}

// hold chooses the addresses of all runs. Everybody goes through the networks in the order of their names, so that no two
// pods wait for each other.
func (w *several) hold(ctx context.Context, runs []*run) (failed int, err error) {
	sorted := slices.SortedFunc(slices.Values(runs), func(a, b *run) int { return cmp.Compare(a.job.Request.Network, b.job.Request.Network) })
	for _, r := range sorted {
		if len(r.types) == 0 {
			continue
		}
		if r.given, err = r.choose(ctx, r.first); err != nil {
			return r.index, err
		}
	}
	return 0, nil
}

// choices are the addresses of several networks. That some were kept when one cannot be is no harm: all were promised.
type choices []ipam.Hold

// gather takes the runs' holds from them; nil when there are none.
func gather(runs []*run) ipam.Hold {
	var all choices
	for _, r := range runs {
		if r.hold != nil {
			all = append(all, r.hold)
			r.hold = nil
		}
	}
	if len(all) == 0 {
		return nil
	}
	return all
}

// Result is never asked for: each run has the one of its own.
func (c choices) Result() model.Result { return model.Result{} }

// Keep reserves all of them.
func (c choices) Keep() error {
	defer c.Drop()
	for _, one := range c {
		if err := one.Keep(); err != nil {
			return err
		}
	}
	return nil
}

// Drop gives up those that are not kept.
func (c choices) Drop() {
	for _, one := range c {
		one.Drop()
	}
}
