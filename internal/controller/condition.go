// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/weft-net/weft/internal/cluster/store"
	"github.com/weft-net/weft/internal/model"
)

// finalizer keeps a pool of the cluster's network until no node has a block of it: addresses whose pool is gone would
// be nobody's, and a pool that somebody makes in its place would give them twice.
const finalizer = "weft.dev/blocks"

// finalizer is the edit that sets the finalizer, or takes it away when the pool may go. Where objects have no UID,
// nobody waits for finalizers.
func (s *scene) finalizer(p model.AddressPool) store.Edit {
	return func(fields map[string]any) error {
		meta, ok := fields["metadata"].(map[string]any)
		if !ok || meta["uid"] == nil {
			return nil
		}
		have, _ := meta["finalizers"].([]any)
		is := slices.Contains(have, any(finalizer))
		want := p.OfCluster() && (!p.Deleted || s.held(p.Name) > 0)
		switch {
		case is == want, want && p.Deleted: // nobody may add one any more
			return nil
		case want:
			have = append(have, finalizer)
		default:
			have = slices.DeleteFunc(have, func(x any) bool { return x == finalizer })
		}
		if meta["finalizers"] = have; len(have) == 0 {
			delete(meta, "finalizers")
		}
		return nil
	}
}

// conditions writes what holds of each pool.
func (s *scene) conditions(ctx context.Context) {
	all := model.PoolConditions(s.sorted())
	for name, err := range s.broken {
		all[name] = model.Condition{Type: model.ConditionAllocatable, Reason: model.ReasonInvalid, Message: err.Error()}
	}
	for _, name := range s.names() {
		if err := s.say(ctx, s.pools[name], all[name]); err != nil {
			s.problems = append(s.problems, err)
		}
	}
}

// say writes a condition into a pool's status where it says something else, or was about an older state of the pool.
func (s *scene) say(ctx context.Context, o store.Object, c model.Condition) error {
	if have, is := o.Conditions()[c.Type]; is && have == c && o.Observed(c.Type) {
		return nil
	}
	next, err := o.Edited(store.WithCondition(c, s.now))
	if err != nil {
		return err
	}
	got, err := s.objects.CompareAndSwapStatus(ctx, store.AddressPools(), o.Version, next)
	switch {
	case err == nil:
		s.take(got)
		return nil
	case errors.Is(err, store.ErrConflict), errors.Is(err, store.ErrNotFound):
		return nil // it is looked at again
	}
	return fmt.Errorf("%s: %w", o.Key, err)
}
