// SPDX-License-Identifier: Apache-2.0

package audit

import (
	"context"
	"slices"

	"github.com/weft-net/weft/internal/cluster/store"
)

// removeExhausted removes a node from status.exhaustedOn of a pool.
func removeExhausted(key store.Key, node string) func(context.Context, store.Objects) error {
	return func(ctx context.Context, objects store.Objects) error {
		now, err := objects.Get(ctx, store.AddressPools(), key)
		if err != nil {
			return err
		}
		spec, err := now.AddressPool()
		if err != nil {
			return err
		}
		next, err := now.Edited(
			store.WithWanted(slices.DeleteFunc(spec.ExhaustedOn, func(x string) bool { return x == node })),
		)
		if err == nil {
			_, err = objects.CompareAndSwapStatus(ctx, store.AddressPools(), now.Version, next)
		}
		return err
	}
}
