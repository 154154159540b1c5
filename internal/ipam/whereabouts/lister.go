// SPDX-License-Identifier: Apache-2.0

package whereabouts

import (
	"context"

	"github.com/weft-net/weft/internal/cluster/store"
)

// ListerOf lists whereabouts' objects, each kind in the time of one request.
func ListerOf(objects store.Objects) Lister {
	return func(ctx context.Context, kind store.Kind) ([]store.Object, error) {
		found, err := store.Bounded(ctx, func(ctx context.Context) ([]store.Object, error) { return objects.List(ctx, kind) })
		if err != nil {
			return nil, store.Unreachable("whereabouts' "+kind.Resource, err)
		}
		return found, nil
	}
}
