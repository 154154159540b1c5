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

// finalizer keeps a pool of the cluster's network until no node has a block of it: addresses without a pool have no
// owner, and a new pool with the same range would allocate them twice.
const finalizer = "weft.dev/blocks"

// finalizerEdit returns the edit that adds the finalizer, or removes it once the pool may be deleted. Objects without a
// UID, in stores other than Kubernetes, have no finalizers.
func (s *poolState) finalizerEdit(p model.AddressPool) store.Edit {
	return func(fields map[string]any) error {
		meta, ok := fields["metadata"].(map[string]any)
		if !ok || meta["uid"] == nil {
			return nil
		}
		have, _ := meta["finalizers"].([]any)
		is := slices.Contains(have, any(finalizer))
		want := p.IsClusterPool() && (!p.Deleted || s.blockCount(p.Name) > 0)
		switch {
		case is == want, want && p.Deleted: // a finalizer cannot be added to a deleted object
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

// writeConditions writes each pool's Allocatable condition.
func (s *poolState) writeConditions(ctx context.Context) {
	all := model.PoolConditions(s.sorted())
	for name, err := range s.invalid {
		all[name] = model.Condition{Type: model.ConditionAllocatable, Reason: model.ReasonInvalid, Message: err.Error()}
	}
	for _, name := range s.names() {
		if err := s.writeCondition(ctx, s.pools[name], all[name]); err != nil {
			s.problems = append(s.problems, err)
		}
	}
}

// writeCondition writes a condition into a pool's status if it has changed, or was observed for an older generation.
func (s *poolState) writeCondition(ctx context.Context, o store.Object, c model.Condition) error {
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
		s.set(got)
		return nil
	case errors.Is(err, store.ErrConflict), errors.Is(err, store.ErrNotFound):
		return nil // the next pass retries
	}
	return fmt.Errorf("%s: %w", o.Key, err)
}
