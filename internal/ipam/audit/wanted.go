// SPDX-License-Identifier: Apache-2.0

package audit

import (
	"context"
	"slices"

	"github.com/weft-net/weft/internal/cluster/store"
)

// unwanted takes a node out of those that found a pool exhausted.
func unwanted(key store.Key, node string) func(context.Context, store.Objects) error {
	return func(ctx context.Context, objects store.Objects) error {
		now, err := objects.Get(ctx, store.AddressPools(), key)
		if err != nil {
			return err
		}
		spec, err := now.AddressPool()
		if err != nil {
			return err
		}
		next, err := now.Edited(store.WithWanted(slices.DeleteFunc(spec.Wanted, func(x string) bool { return x == node })))
		if err == nil {
			_, err = objects.CompareAndSwapStatus(ctx, store.AddressPools(), now.Version, next)
		}
		return err
	}
}
